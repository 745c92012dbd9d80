"""Bounds that other writers made: cut inside of a character, of another length or type. No error, no row lost, the same plan both ways.

What a filter may match is worked out by hand. A bound that is no value of its column's type says nothing (``metadata.sound_bounds``).
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import polars as pl  # noqa: F401 - few entries are read as columns only if it is in use
import pyarrow as pa
import pytest
from pyiceberg import expressions as ex
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntryStatus, PartitionFieldSummary
from pyiceberg.typedef import Record

from icelock.arrow.write import metrics
from icelock.keys.entropy import SystemEntropy, mint_file_key
from icelock.metadata.manifest import DataFile, ManifestEntry
from tests.lakes.sqlite import KEYED, TestLake
from tests.unit.table.test_plan_columns import NAMES, Place, relisted

BULLET = "a" * 15 + "\u2022"
CUT = BULLET.encode()[:16]  # two bytes of three are missing
RAISED = BULLET.encode()[:15] + b"\xe3"  # the same, its last byte raised: DuckDB did so


@pytest.fixture
def place(tmp_path: Path) -> Place:
    lake = TestLake(tmp_path)
    lake.catalog().create_namespace("db")
    return Place(lake)


def manifest_of(place: Place, spec_id: int = 0, partition: Record | None = None, **bounds: tuple[bytes | None, bytes | None]) -> Any:
    ids = {name: NAMES.index(name) + 1 for name in bounds}
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="file:/t/0.parquet",
        file_format=FileFormat.PARQUET,
        partition=partition or Record(),
        record_count=10,
        file_size_in_bytes=1000,
        key_metadata=mint_file_key(SystemEntropy(), 16).closed(1000).encode(),  # type: ignore[arg-type]
        value_counts={ids[name]: 10 for name in bounds},
        null_value_counts={ids[name]: 0 for name in bounds},
        lower_bounds={ids[name]: low for name, (low, _) in bounds.items() if low is not None},
        upper_bounds={ids[name]: high for name, (_, high) in bounds.items() if high is not None},
    )
    file.spec_id = spec_id
    entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=7, data_file=file)
    (manifest,) = place.write([(spec_id, ManifestContent.DATA, [entry])])
    return manifest


LONG_ONE = struct.pack("<q", 1)
CASES: list[tuple[str, bytes | None, bytes | None, ex.BooleanExpression, bool]] = [
    # column, lower and upper bound, filter, whether rows may match
    ("text", CUT, RAISED, ex.EqualTo("text", BULLET), True),
    ("text", CUT, RAISED, ex.GreaterThan("text", "m"), True),  # nothing is known
    ("text", CUT, b"b", ex.GreaterThan("text", "m"), False),  # the upper bound is sound
    ("text", b"c", RAISED, ex.LessThan("text", "b"), False),  # the lower one is
    ("text", CUT, RAISED, ex.StartsWith("text", "aaa"), True),
    ("text", CUT, RAISED, ex.NotStartsWith("text", "aaa"), True),
    ("text", b"\xff", b"\xff", ex.In("text", ["a", "b"]), True),
    ("text", b"\xed\xa0\x80", b"\xed\xbf\xbf", ex.EqualTo("text", "x"), True),  # surrogates
    ("text", b"a", None, ex.GreaterThan("text", "z"), True),  # upper bound missing
    ("text", b"b", None, ex.LessThan("text", "b"), False),
    ("big", struct.pack("<i", 5), struct.pack("<i", 9), ex.EqualTo("big", 7), True),  # an int's, promoted
    ("big", struct.pack("<i", 5), struct.pack("<i", 9), ex.EqualTo("big", 10), False),
    ("big", b"\x01", b"\x01\x02\x03", ex.EqualTo("big", 10), True),
    ("big", b"", b"", ex.EqualTo("big", 10), True),
    ("number", LONG_ONE, LONG_ONE, ex.EqualTo("number", 7), True),  # a long's in an int
    ("real", struct.pack("<f", 1.5), struct.pack("<f", 2.5), ex.EqualTo("real", 3.0), False),
    ("real", struct.pack("<d", math.nan), struct.pack("<d", math.nan), ex.EqualTo("real", 3.0), True),
    ("real", b"\x00", b"\x00\x00", ex.LessThan("real", 3.0), True),
    ("moment", struct.pack("<i", 5), struct.pack("<i", 9), ex.GreaterThanOrEqual("moment", "2020-01-01T00:00:00"), True),  # a date's
    ("day", LONG_ONE, LONG_ONE, ex.EqualTo("day", "2020-01-01"), True),
    ("flag", b"", b"", ex.EqualTo("flag", value=True), True),
    ("money", b"\x00\x00\x00\x7f", b"\x00" * 9 + b"\x7f", ex.EqualTo("money", "1.27"), True),  # longer than they need be: 1.27
    ("money", b"\x00\x00\x00\x7f", b"\x00" * 9 + b"\x7f", ex.EqualTo("money", "1.28"), False),
    ("money", b"", b"\x7f" * 40, ex.EqualTo("money", "1.28"), True),
    ("raw", b"\xff\xfe", None, ex.EqualTo("raw", b"\xff"), False),
]


@pytest.mark.parametrize(("column", "lower", "upper", "row_filter", "left"), CASES)
def test_both_readers_plan_by_what_bounds_really_say(  # noqa: PLR0913 - a case has five parts
    place: Place, column: str, lower: bytes | None, upper: bytes | None, row_filter: ex.BooleanExpression, left: int
) -> None:
    manifest = manifest_of(place, **{column: (lower, upper)})
    assert [len(plan([manifest], row_filter)) for plan in (place.by_row, place.by_columns, place.files)] == [left, left, left]


@pytest.mark.parametrize(("lower", "upper"), [(b"\xff", b"\xff"), (b"a", b"\xe2\x80"), (b"\xe2", b"b")])
def test_a_manifest_whose_summary_is_no_text_may_hold_anything(place: Place, lower: bytes, upper: bytes) -> None:
    """In a summary a missing bound means that there are no values; so an unsound one must not be taken for missing."""
    manifest = manifest_of(place, 2, Record(None, None, "ab"), text=(b"ab", b"ab"))
    summary = [PartitionFieldSummary(True, False, None, None)] * 2 + [PartitionFieldSummary(False, None, lower, upper)]  # noqa: FBT003
    listed = relisted(manifest, partitions=summary)
    for plan in (place.by_row, place.by_columns):
        assert len(plan([listed], ex.EqualTo("text", "ab"))) == 1


def test_rows_under_bounds_that_were_cut_are_found_shown_updated_and_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = TestLake(tmp_path)
    catalog = lake.catalog()
    catalog.create_namespace("db")
    schema = pa.schema([("s", pa.string()), ("i", pa.int64())])
    table = catalog.create_table("db.t", schema, properties=KEYED)
    real_lower, real_upper = metrics.lower_bound, metrics.upper_bound
    with monkeypatch.context() as patched:
        patched.setattr(metrics, "lower_bound", lambda kind, value, n: CUT if isinstance(value, bytes) else real_lower(kind, value, n))
        patched.setattr(metrics, "upper_bound", lambda kind, value, n: RAISED if isinstance(value, bytes) else real_upper(kind, value, n))
        table.append(pa.table({"s": [BULLET, "\u2019" * 10, "z"], "i": pa.array([1, 2, 3], pa.int64())}))
    assert table.scan(row_filter="s > 'm'").to_arrow()["i"].to_pylist() == [2, 3]
    (shown,) = table.inspect.files().to_pylist()
    assert (shown["readable_metrics"]["s"]["lower_bound"], shown["readable_metrics"]["i"]["lower_bound"]) == (None, 1)
    assert dict(shown["lower_bounds"])[1] == CUT
    assert len(table.inspect.entries()) == 1
    table.upsert(pa.table({"s": ["\u2019" * 10], "i": pa.array([22], pa.int64())}), ["s"])
    assert sorted(table.scan().to_arrow()["i"].to_pylist()) == [1, 3, 22]
    table.delete("s = 'z'")
    assert sorted(table.scan().to_arrow()["i"].to_pylist()) == [1, 22]
