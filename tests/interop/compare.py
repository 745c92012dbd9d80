"""Rows of either engine in one comparable form.

A row is JSON text with its columns in order: bytes as hex, decimals as their digits, times as ISO text (in UTC where there is a
zone), a map as sorted pairs, a UUID as text (Spark has no other form), NaN as "nan". Order of rows does not matter.

Not here: how rows are read.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import uuid
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

_FORMS: Final = (
    (float, lambda value: "nan" if math.isnan(value) else value),
    ((bytes, bytearray), lambda value: f"0x{bytes(value).hex()}"),
    (decimal.Decimal, lambda value: f"{value:f}"),
    (dt.datetime, lambda value: (value.astimezone(dt.UTC) if value.tzinfo else value).isoformat()),
    ((dt.date, dt.time), lambda value: value.isoformat()),
    (uuid.UUID, str),
)


def canonical(table: pa.Table) -> list[str]:
    """Return the rows as sorted JSON text."""
    return sorted(json.dumps(row, ensure_ascii=False) for row in _rows(table))


def canonical_rows(columns: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Return rows of plain Python values in the form of ``canonical``."""
    names = list(columns)
    return sorted(json.dumps({name: plain(v) for name, v in zip(names, row, strict=True)}, ensure_ascii=False) for row in rows)


def plain(value: Any) -> Any:
    """Return one value without an Arrow type to go by."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return next((show(value) for kinds, show in _FORMS if isinstance(value, kinds)), value)


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    columns = [[_shown(value, field.type) for value in table.column(i).to_pylist()] for i, field in enumerate(table.schema)]
    return [dict(zip(table.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _shown(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _shown(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        pairs = [[_shown(key, kind.key_type), _shown(item, kind.item_type)] for key, item in value]
        return sorted(pairs, key=json.dumps)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_shown(item, kind.value_type) for item in value]
    return plain(value)
