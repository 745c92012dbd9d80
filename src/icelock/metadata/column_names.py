"""Columns by the names that users give in filters, selections and keys.

Not here: columns by field id (``file_schema``), names that Spark asks for.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from icelock.errors import PolicyError
from icelock.metadata.metadata_columns import FILE, LAST_UPDATED, PARTITION_NAME, POS, ROW_ID, SPEC_ID

_OF_ROWS: Final = frozenset({field.name for field in (FILE, POS, SPEC_ID, ROW_ID, LAST_UPDATED)} | {PARTITION_NAME})
_SHOWN: Final = 60


def find_column(schema: Schema, name: str, *, case_sensitive: bool) -> NestedField:
    """Return the field with a name; dots lead to fields of structs.

    Raises:
        PolicyError: no such column, with the nearest name; or two whose names differ in case only.
    """
    names = schema.column_names
    if not case_sensitive:
        same = [known for known in names if known.lower() == name.lower()]
        if len(same) > 1:
            raise PolicyError(
                f"column {shortened(name)!r} may be {' or '.join(map(repr, same[:3]))}, which differ in case only: use case-sensitive names"
            )
        name = same[0] if same else name
    if name not in names:
        raise PolicyError(unknown_column(name, names))
    return schema.find_field(name)


def unknown_column(name: str, known: Iterable[str]) -> str:
    """Return the message for a name that is not a column."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1) or [one for one in names if one.lower() == name.lower()]
    hint = f"did you mean {shortened(near[0])!r}?" if near else f"the table has {shortened(', '.join(names))}"
    return f"column {shortened(name)!r} does not exist; {hint}"


def is_metadata_column(name: str) -> bool:
    """Whether a scan may select this name beside the table's columns."""
    return name.lower() in _OF_ROWS


def shortened(text: str) -> str:
    """Return text for a message, cut if it is long."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
