"""Values of rows as JSON and as text.

JSON: as the spec's "JSON single-value serialization": binary and fixed in hexadecimal, dates and times in ISO 8601, decimals and UUIDs
as text; null is null. Maps are lists of ``{"key": ..., "value": ...}``. Floats that JSON has no number for are "NaN", "Infinity" and
"-Infinity".

Source: Iceberg table spec, Appendix C. Not here: how they are laid out (``cli.grid``).
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pat

from icelock.shown import visible

_LONGEST: Final = 120
_KINDS_AS_THEY_ARE: Final = (bool, int, str, type(None))


def json_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table, by column names."""
    columns = {name: [json_value(scalar) for scalar in table.column(name)] for name in table.column_names}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def json_value(scalar: pa.Scalar) -> Any:
    """Return a value as JSON has it."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pat.is_map(kind):
        return [{"key": json_value(pair["key"]), "value": json_value(pair["value"])} for pair in scalar.values]
    if pat.is_struct(kind):
        return {field.name: json_value(scalar[place]) for place, field in enumerate(kind)}
    if pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind):
        return [json_value(one) for one in scalar.values]
    if pat.is_temporal(kind):
        return _moment(scalar)
    return _plain(scalar.as_py())


def _plain(value: Any) -> Any:
    if isinstance(value, _KINDS_AS_THEY_ARE):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value.hex() if isinstance(value, bytes) else str(value)


def _moment(scalar: pa.Scalar) -> str:
    """Return a date or time in ISO 8601; a fraction of a second that is 0 is left out."""
    text = str(scalar.cast(pa.string())).replace(" ", "T", 1)
    text, zone = (text.removesuffix("Z"), "+00:00") if text.endswith("Z") else (text, "")
    whole, point, fraction = text.partition(".")
    return f"{whole}{point if fraction.strip('0') else ''}{fraction if fraction.strip('0') else ''}{zone}"


def cell(value: Any, *, longest: int = _LONGEST) -> str:
    """Return a value of ``json_value`` as people read it, in one line, cut after ``longest`` characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = visible(text[: longest + 1])
    return text if len(text) <= longest else f"{text[:longest]}..."
