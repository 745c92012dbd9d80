"""Texts in metadata of other writers, parsed: numbers in properties and summaries, the name mapping.

Not here: the settings that writers of data files take (``arrow.write.options``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import NameMapping

from icelock.errors import FormatError, PolicyError
from icelock.metadata.json_values import LONG

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")


def is_long(text: Any) -> bool:
    """Whether text is a number of 64 bits as Java's ``Long.parseLong`` reads it."""
    return isinstance(text, str) and _NUMBER.fullmatch(text) is not None and -LONG - 1 <= int(text) <= LONG


def whole_number(properties: Mapping[str, str], name: str, default: int | None) -> int | None:
    """Return a property as a number.

    Raises:
        PolicyError: it is not a number of 64 bits; names it.
    """
    text = properties.get(name)
    if text is None:
        return default
    if not is_long(str(text).strip()):
        raise PolicyError(f"table property {name} is {str(text)[:40]!r}; it must be a whole number of 64 bits")
    return int(text)


def name_mapping_of(metadata: TableMetadata) -> NameMapping | None:
    """Return the mapping of names to ids, for files without ids; None if there is none.

    Raises:
        FormatError: it cannot be read.
    """
    try:
        return metadata.name_mapping()
    except (ValueError, RecursionError) as e:
        name = TableProperties.DEFAULT_NAME_MAPPING
        raise FormatError(
            f"table property {name} of the table at {metadata.location} is not a name mapping: set it again or remove it ({e})"
        ) from e
