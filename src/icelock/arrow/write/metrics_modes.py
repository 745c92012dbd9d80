"""Which metrics a data file's manifest entry holds for each column (``write.metadata.metrics.*``).

Rules of Java's ``MetricsConfig`` 1.12: modes ``none``, ``counts``, ``truncate(n)``, ``full``; ``default`` applies to all columns; without
it the first ``max-inferred-column-defaults`` (100) primitive fields get ``truncate(16)`` (a struct's own first, then those below
it) and the others none; columns of an order-preserving sort get bounds; ``column.<name>`` overrides. An invalid mode is ignored.

Not here: the metrics (``arrow.write.metrics``).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import IcebergType, NestedField, PrimitiveType

from icelock.metadata.schema_paths import child_fields

DEFAULT: Final = "write.metadata.metrics.default"
COLUMN: Final = "write.metadata.metrics.column."
MAX_INFERRED: Final = "write.metadata.metrics.max-inferred-column-defaults"
_MAX_INFERRED_DEFAULT: Final = 100
_TRUNCATE: Final = re.compile(r"truncate\((\d+)\)")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsMode:
    """What is kept for a column: ``counts`` of values, nulls and NaN, and bounds of at most ``length`` units (None: whole)."""

    counts: bool
    bounds: bool
    length: int | None = None


NONE: Final = MetricsMode(counts=False, bounds=False)
COUNTS: Final = MetricsMode(counts=True, bounds=False)
FULL: Final = MetricsMode(counts=True, bounds=True)
TRUNCATE_16: Final = MetricsMode(counts=True, bounds=True, length=16)


def metrics_modes(properties: Mapping[str, str], schema: Schema, order: SortOrder) -> dict[int, MetricsMode]:
    """Return the mode of each primitive field of a schema, by id."""
    ids = [field.field_id for field in _primitives(schema.as_struct())]
    configured = _parse(properties.get(DEFAULT), DEFAULT)
    limit = _max_inferred(properties)
    inferred = dict.fromkeys(ids[:limit], TRUNCATE_16) if configured is None else {}
    fallback = configured or (TRUNCATE_16 if len(inferred) < limit else NONE)
    modes = dict.fromkeys(ids, fallback) | inferred
    promoted = configured if configured is not None and configured.bounds else TRUNCATE_16
    modes |= {field.source_id: promoted for field in order.fields if field.transform.preserves_order and field.source_id in modes}
    for name, text in properties.items():
        mode = _parse(text, name) if name.startswith(COLUMN) else None
        if mode is not None:
            modes |= {field_id: mode for field_id in ids if schema.find_column_name(field_id) == name.removeprefix(COLUMN)}
    return modes


def _parse(text: str | None, name: str) -> MetricsMode | None:
    if text is None:
        return None
    known = {"none": NONE, "counts": COUNTS, "full": FULL}.get(text.lower())
    if known is not None:
        return known
    found = _TRUNCATE.fullmatch(text.lower())
    if found is None or int(found[1]) == 0:
        _log.debug("ignoring the metrics mode %r of %s: expected none, counts, truncate(n) or full", text, name)
        return None
    return MetricsMode(counts=True, bounds=True, length=int(found[1]))


def _max_inferred(properties: Mapping[str, str]) -> int:
    text = properties.get(MAX_INFERRED, "").strip()
    return int(text) if text.isascii() and text.isdigit() else _MAX_INFERRED_DEFAULT


def _primitives(kind: IcebergType) -> Iterator[NestedField]:
    """Yield primitive fields in the order in which Java uses up its limit (``MetricsConfig.limitFieldIds``)."""
    fields = child_fields(kind)
    yield from (field for field in fields if isinstance(field.field_type, PrimitiveType))
    for field in fields:
        yield from _primitives(field.field_type)
