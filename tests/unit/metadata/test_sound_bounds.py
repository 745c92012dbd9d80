"""Bounds of other writers as values: only what is a value of the column's type (spec, Appendix D)."""

from __future__ import annotations

import pytest
from pyiceberg.types import DecimalType, IntegerType, ListType, LongType, StringType

from icelock.metadata.sound_bounds import decoded_bounds


@pytest.mark.parametrize(
    ("kind", "lower", "upper", "values"),
    [
        (IntegerType(), "07000000", "09000000", (7, 9)),  # 4 bytes, little-endian
        (LongType(), "07000000", "0900000000000000", (7, 9)),  # an int's bound, from before the promotion
        (StringType(), "61", "c3a9", ("a", "é")),
        (StringType(), "61", "c3", None),  # cut inside a character
        (StringType(), "ff", "7a", None),
        (IntegerType(), "0700", "09000000", None),
        (DecimalType(2, 0), "07", "0064", None),  # 100 has three digits
        (ListType(1, IntegerType()), "07000000", "09000000", None),
        (None, "07000000", "09000000", None),
        (IntegerType(), None, "09000000", None),
        (IntegerType(), "07000000", None, None),
    ],
)
def test_bounds_are_values_if_both_are(kind, lower, upper, values):
    assert decoded_bounds(kind, *(None if one is None else bytes.fromhex(one) for one in (lower, upper))) == values
