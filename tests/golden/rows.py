"""Arrow rows in the JSON form of ``expected.json``: bytes as ``{"b64"}``, decimals and times as text in UTC, maps as pairs."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import re
from typing import Any

import pyarrow as pa

_EXPONENT = re.compile(r'"(-?\d+(?:\.\d+)?E-\d+)"')


def plain(value: Any, kind: pa.DataType) -> Any:
    """Return one value as ``expected.json`` writes it."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {kind.field(i).name: plain(value[kind.field(i).name], kind.field(i).type) for i in range(kind.num_fields)}
    if pa.types.is_map(kind):
        pairs = [[plain(k, kind.key_type), plain(v, kind.item_type)] for k, v in value]
        return {"map": sorted(pairs, key=lambda pair: json.dumps(pair[0]))}
    if pa.types.is_list(kind):
        return [plain(item, kind.value_type) for item in value]
    return _leaf(value)


def _leaf(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):  # noqa: PLR0124 - NaN
        return str(value)
    return value


def rows(table: pa.Table) -> list[str]:
    """Return the rows as sorted JSON text, comparable with ``sorted_json(expected)``."""
    return sorted_json([{f.name: plain(row[f.name], f.type) for f in table.schema} for row in table.to_pylist()])


def sorted_json(values: list[dict[str, Any]]) -> list[str]:
    """Return rows of ``expected.json`` as sorted JSON text; ``7.00E-10`` and ``7E-10`` are one value."""
    texts = (json.dumps(value, sort_keys=True) for value in values)
    return sorted(_EXPONENT.sub(lambda m: f'"{decimal.Decimal(m.group(1)).normalize()}"', text) for text in texts)
