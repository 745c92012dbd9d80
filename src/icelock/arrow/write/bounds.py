"""Lower and upper bounds of a column as single values (format.md, "Single values, metrics"; spec, Appendix D).

    boolean 00 or 01 · int, date 4 bytes LE · long, time, timestamps 8 bytes LE · float, double IEEE LE · string UTF-8 ·
    uuid, fixed, binary unchanged · decimal: shortest big-endian two's complement of the unscaled value

Values come as Parquet keeps them (int, bool, bytes) or as Python floats. Strings and binary are cut to n code points or bytes; the last
unit of a cut upper bound is increased by 1 (U+D7FF is followed by U+E000); if it is the highest, it is dropped and the one before
increased; if none is left, there is no upper bound (Java ``UnicodeUtil``, ``BinaryUtil``).

Not here: finding the values (``arrow.write.metrics``).
"""

from __future__ import annotations

import struct
from typing import Final

from pyiceberg import types as ice

Stored = bool | int | float | bytes

_FIRST_SURROGATE: Final = 0xD800
_AFTER_SURROGATES: Final = 0xE000
_MAX_CODE_POINT: Final = 0x10FFFF
_MAX_BYTE: Final = 0xFF


def comparable(kind: ice.PrimitiveType, stored: Stored) -> Stored:
    """Return a footer's raw value in a form that sorts like the column: decimals stored as bytes become numbers."""
    if isinstance(kind, ice.DecimalType) and isinstance(stored, bytes):
        return int.from_bytes(stored, "big", signed=True)
    return stored


def lower_bound(kind: ice.PrimitiveType, value: Stored, length: int | None) -> bytes:
    """Return the lower bound's bytes; ``length`` cuts strings and binary, None leaves them whole."""
    if isinstance(kind, ice.StringType) and isinstance(value, bytes) and length is not None:
        return value.decode()[:length].encode()
    if isinstance(kind, ice.BinaryType) and isinstance(value, bytes) and length is not None:
        return value[:length]
    return single_value(kind, value)


def upper_bound(kind: ice.PrimitiveType, value: Stored, length: int | None) -> bytes | None:
    """Return the upper bound's bytes, or None if no value of that length is high enough."""
    if isinstance(kind, ice.StringType) and isinstance(value, bytes) and length is not None:
        raised = _raised_text(value.decode(), length)
        return None if raised is None else raised.encode()
    if isinstance(kind, ice.BinaryType) and isinstance(value, bytes) and length is not None:
        return _raised_bytes(value, length)
    return single_value(kind, value)


def single_value(kind: ice.PrimitiveType, value: Stored) -> bytes:
    """Return a whole value in Iceberg's single-value form."""
    if isinstance(value, bytes):
        return value
    if isinstance(kind, ice.BooleanType):
        return b"\x01" if value else b"\x00"
    if isinstance(kind, (ice.FloatType, ice.DoubleType)):
        return struct.pack("<f" if isinstance(kind, ice.FloatType) else "<d", value)
    number = int(value)
    if isinstance(kind, ice.DecimalType):
        return number.to_bytes(_twos_complement_length(number), "big", signed=True)
    return struct.pack("<i" if isinstance(kind, (ice.IntegerType, ice.DateType)) else "<q", number)


def _twos_complement_length(number: int) -> int:
    return (number if number >= 0 else ~number).bit_length() // 8 + 1


def _raised_text(text: str, length: int) -> str | None:
    if len(text) <= length:
        return text
    for last in range(length - 1, -1, -1):
        code = ord(text[last]) + 1
        if code == _FIRST_SURROGATE:
            code = _AFTER_SURROGATES
        if code <= _MAX_CODE_POINT:
            return text[:last] + chr(code)
    return None


def _raised_bytes(value: bytes, length: int) -> bytes | None:
    if len(value) <= length:
        return value
    for last in range(length - 1, -1, -1):
        if value[last] < _MAX_BYTE:
            return value[:last] + bytes([value[last] + 1])
    return None
