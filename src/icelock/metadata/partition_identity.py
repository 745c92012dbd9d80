"""The identity of a partition: its values, compared as in Java.

Not here: sets of partitions (``plan.partition_set``), rows split by partition (``arrow.write.partition``).
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence
from typing import Any, Final

_NAN: Final = struct.pack("<d", float("nan"))


def identity_of(values: Sequence[Any]) -> Hashable:
    """Return equal keys for equal partitions: NaN equals NaN, and -0.0 is not 0.0, as in Java's ``Double.equals``."""
    return tuple(_float_bits(value) if isinstance(value, float) else value for value in values)


def _float_bits(value: float) -> bytes:
    return struct.pack("<d", value) if value == value else _NAN  # noqa: PLR0124 - NaN
