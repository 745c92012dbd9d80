"""A sort order as text: ``city desc nulls last, bucket(4, id)``, with the transforms and defaults of Java's DDL."""

from __future__ import annotations

import re
from typing import Final

from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, Transform, parse_transform

from icelock.errors import PolicyError
from icelock.metadata.schema_paths import find_column

TABLE: Final = "table"
BETWEEN: Final = re.compile(r",(?![^(]*\))")  # a comma that is not inside of a transform
KEY: Final = r"(?P<term>.+?)(\s+(?P<direction>asc|desc))?(\s+nulls\s+(?P<nulls>first|last))?"
_KEY: Final = re.compile(KEY, re.IGNORECASE | re.DOTALL)
_CALL: Final = re.compile(r"(?P<name>\w+)\s*\(\s*((?P<number>\d+)\s*,\s*)?(?P<column>.+?)\s*\)", re.DOTALL)
_TIME: Final = {"years": "year", "months": "month", "days": "day", "hours": "hour"}


def parse_sort_order(given: SortOrder | str | None, metadata: TableMetadata, *, table: str) -> SortOrder | None:
    """Return an order of a table's rows; ``"table"`` is its own.

    Raises:
        PolicyError: text that is no order of the table's columns, or the table has no order of its own.
    """
    if given is None or isinstance(given, SortOrder):
        return given
    if given.strip().lower() == TABLE:
        order = metadata.sort_order()
        if order.is_unsorted:
            raise PolicyError(f"table {table} has no sort order: name one, such as 'city desc, id', or set the table's")
        return order
    fields = [_field(text.strip(), metadata, table=table) for text in BETWEEN.split(given)]
    same = (order for order in metadata.sort_orders if list(order.fields) == fields)
    return next(same, None) or SortOrder(*fields, order_id=0)


def _field(text: str, metadata: TableMetadata, *, table: str) -> SortField:
    match = _KEY.fullmatch(text)
    if match is None:
        raise PolicyError(f"table {table}: {text!r} is not a sort key: use 'column desc nulls last', or a transform such as bucket(4, id)")
    column, transform = _term(match["term"].strip(), table=table)
    field = find_column(metadata.schema(), column.strip("`"), case_sensitive=True)
    direction, null_order = direction_of(match)
    return SortField(source_id=field.field_id, transform=transform, direction=direction, null_order=null_order)


def direction_of(key: re.Match[str]) -> tuple[SortDirection, NullOrder]:
    """Return how a sort key orders, by a match of ``KEY``; what it does not say is as in Java."""
    down = (key["direction"] or "asc").lower() == "desc"
    nulls = (key["nulls"] or ("last" if down else "first")).lower()
    direction = SortDirection.DESC if down else SortDirection.ASC
    return direction, NullOrder.NULLS_FIRST if nulls == "first" else NullOrder.NULLS_LAST


def _term(text: str, *, table: str) -> tuple[str, Transform]:  # type: ignore[type-arg]
    match = _CALL.fullmatch(text)
    if match is None:
        return text, IdentityTransform()
    name = match["name"].lower()
    if match["number"] is not None and int(match["number"]) == 0:
        raise PolicyError(f"table {table}: {text!r} has the number 0; it must be at least 1")
    kind = f"{name}[{match['number']}]" if match["number"] else _TIME.get(name, name)
    try:
        return match["column"], parse_transform(kind)
    except (ValueError, ValidationError) as e:
        raise PolicyError(
            f"table {table}: there is no transform {text!r}: write one such as bucket(4, id), truncate(2, city), days(at)"
        ) from e
