"""Plain ORC files written by pyarrow with the attributes of Java's ``ORCSchemaUtil``: ids, types that ORC lacks, strictness.

Files of Java's own: ``tests/interop/test_convert.py``.
"""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from pyiceberg import types as ice
from pyiceberg.expressions import GreaterThan
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping

from icelock.arrow.read.task import count_task, read_task
from icelock.errors import FormatError, IntegrityError, PolicyError
from icelock.metadata.metadata_columns import POS
from icelock.plan.task import ScanTask
from tests.unit.arrow.support import context, metadata, opt, read, task

UTC = dt.UTC


def stored(name: str, kind: pa.DataType, field_id: int | None, **attributes: str) -> pa.Field:
    """A field with Java's attributes: ``long_type`` is ``iceberg.long-type``."""
    given = {f"iceberg.{key.replace('_', '-')}": value for key, value in attributes.items()}
    return pa.field(name, kind, metadata=given if field_id is None else {"iceberg.id": str(field_id), **given})


def written(path: Path, schema: pa.Schema, rows: list[dict[str, Any]], **options: Any) -> ScanTask:
    orc.write_table(pa.Table.from_pylist(rows, schema), path, **options)
    return task(path, key=None, file_format="ORC", record_count=len(rows))


def plain(schema: Schema, row_filter: Any = None, **fields: Any) -> Any:
    return context(schema, row_filter, allow_plaintext=True, **fields)


def test_columns_go_by_id_and_the_rest_is_evolution(tmp_path: Path) -> None:
    """Names were changed, one column was dropped, one was added: the file has the old ones, and an int that is a long now."""
    place = pa.struct([stored("name", pa.string(), 5), stored("no", pa.int32(), 6)])
    file = written(
        tmp_path / "f.orc",
        pa.schema([stored("a", pa.int32(), 1), stored("b", pa.string(), 2), stored("place", place, 4)]),
        [{"a": 1, "b": "x", "place": {"name": "n", "no": 7}}, {"a": None, "b": "y", "place": None}],
    )
    kind = ice.StructType(opt(6, "number", ice.LongType()), opt(5, "name", ice.StringType()))
    schema = Schema(opt(3, "b", ice.StringType()), opt(4, "place", kind), opt(1, "id", ice.LongType()))
    assert read(plain(schema), file).to_pylist() == [
        {"b": None, "place": {"number": 7, "name": "n"}, "id": 1},
        {"b": None, "place": None, "id": None},
    ]


def test_types_that_orc_lacks(tmp_path: Path) -> None:
    """Spec, Appendix A: a time is a long of microseconds, a uuid and fixed bytes are binary."""
    number = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    value = stored("value", pa.binary(), 8, binary_type="UUID")
    schema = pa.schema(
        [
            stored("t", pa.int64(), 1, long_type="TIME"),
            stored("u", pa.binary(), 2, binary_type="UUID"),
            stored("f", pa.binary(), 3, binary_type="FIXED", length="3"),
            stored("l", pa.list_(stored("item", pa.int64(), 5, long_type="TIME")), 4),
            stored("m", pa.map_(pa.field("key", pa.string(), nullable=False, metadata={"iceberg.id": "7"}), value), 6),
            stored("b", pa.binary(), 9, binary_type="BINARY"),
            stored("n", pa.int64(), 10, long_type="LONG"),
        ]
    )
    row = {"t": 3_723_000_004, "u": number.bytes, "f": b"abc", "l": [1, None], "m": [("k", number.bytes)], "b": b"\xff", "n": 5}
    file = written(tmp_path / "f.orc", schema, [row, dict.fromkeys(row)])
    wanted = Schema(
        opt(1, "t", ice.TimeType()),
        opt(2, "u", ice.UUIDType()),
        opt(3, "f", ice.FixedType(3)),
        opt(4, "l", ice.ListType(5, ice.TimeType(), element_required=False)),
        opt(6, "m", ice.MapType(7, ice.StringType(), 8, ice.UUIDType(), value_required=False)),
        opt(9, "b", ice.BinaryType()),
        opt(10, "n", ice.LongType()),
    )
    found = read(plain(wanted), file).to_pylist()
    time = dt.time(1, 2, 3, 4)
    assert found[0] == {
        "t": time, "u": number, "f": b"abc", "l": [dt.time(0, 0, 0, 1), None], "m": [("k", number)], "b": b"\xff", "n": 5
    }  # fmt: skip
    assert found[1] == dict.fromkeys(row)


def test_moments(tmp_path: Path) -> None:
    """Before 1970 too, where old ORC libraries lost a second."""
    before = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001 - without a zone
    schema = pa.schema([stored("n", pa.timestamp("us"), 1), stored("z", pa.timestamp("us", "UTC"), 2), stored("d", pa.date32(), 3)])
    rows = [
        {"n": before, "z": before.replace(tzinfo=UTC), "d": dt.date(1, 1, 1)},
        {"n": dt.datetime(2262, 4, 11), "z": dt.datetime(1677, 9, 22, tzinfo=UTC), "d": dt.date(9999, 12, 31)},  # noqa: DTZ001
    ]
    wanted = Schema(opt(1, "n", ice.TimestampType()), opt(2, "z", ice.TimestamptzType()), opt(3, "d", ice.DateType()))
    assert read(plain(wanted), written(tmp_path / "f.orc", schema, rows)).to_pylist() == rows


@pytest.mark.parametrize("moment", [dt.datetime(1, 1, 1), dt.datetime(1677, 9, 20), dt.datetime(2262, 4, 12), dt.datetime(9999, 1, 1)])  # noqa: DTZ001
def test_a_moment_that_arrow_cannot_hold_is_an_error_and_no_other_moment(tmp_path: Path, moment: dt.datetime) -> None:
    file = written(tmp_path / "f.orc", pa.schema([stored("n", pa.timestamp("us"), 1)]), [{"n": moment}])
    with pytest.raises(FormatError, match=r"f\.orc .*out of range for nanosecond.*write it again as Parquet with Java"):
        read(plain(Schema(opt(1, "n", ice.TimestampType()))), file)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_wall_time_is_no_instant(tmp_path: Path, zone: str | None) -> None:
    """Iceberg issues 2245 and 9784: Hive's ``timestamp`` under a column with a zone; Java refuses it, and it would be another moment."""
    moment = dt.datetime(2020, 1, 1, tzinfo=zone and UTC)
    file = written(tmp_path / "f.orc", pa.schema([stored("at", pa.timestamp("us", zone), None)]), [{"at": moment}])
    kind = ice.TimestamptzType() if zone is None else ice.TimestampType()
    with pytest.raises(FormatError, match=r"'at' is a timestamp with(out)? zone in this ORC file"):
        read(plain(Schema(opt(1, "at", kind))), file)


def test_files_without_ids_go_by_the_mapping_else_by_the_schemas_names(tmp_path: Path) -> None:
    """Java's OrcIterable; files that Hive wrote and ``migrate`` took in have none."""
    file = written(
        tmp_path / "f.orc", pa.schema([("a", pa.int64()), ("a.b", pa.int64()), ("c", pa.string())]), [{"a": 1, "a.b": 2, "c": "x"}]
    )
    schema = Schema(opt(1, "a.b", ice.LongType()), opt(2, "c", ice.StringType()))
    assert read(plain(schema), file).to_pylist() == [{"a.b": 2, "c": "x"}]
    mapping = NameMapping([MappedField(field_id=1, names=["a"], fields=[])])
    assert read(plain(schema, name_mapping=mapping), file).to_pylist() == [{"a.b": 1, "c": None}]


def test_stripes_positions_filters_and_counts(tmp_path: Path) -> None:
    rows = [{"a": number, "b": "x" * 100} for number in range(50_000)]
    file = written(
        tmp_path / "f.orc", pa.schema([stored("a", pa.int64(), 1), stored("b", pa.string(), 2)]), rows, stripe_size=1 << 16, batch_size=1024
    )
    assert orc.ORCFile(file.path).nstripes > 1
    schema = Schema(opt(1, "a", ice.LongType()), opt(2, "b", ice.StringType()))
    scan = plain(Schema(opt(1, "a", ice.LongType()), POS), GreaterThan("a", 49_900), table_schema=schema)
    assert read(scan, file).to_pylist() == [{"a": number, "_pos": number} for number in range(49_901, 50_000)]
    assert count_task(plain(schema, GreaterThan("a", 9)), file) == 49_990
    assert sum(batch.num_rows for batch in read_task(plain(Schema()), file)) == 50_000


def test_a_file_that_was_cut_or_replaced_or_is_none(tmp_path: Path) -> None:
    schema = Schema(opt(1, "a", ice.LongType()))
    file = written(tmp_path / "f.orc", pa.schema([stored("a", pa.int64(), 1)]), [{"a": number} for number in range(9)])
    with pytest.raises(IntegrityError, match="has 9 rows, its manifest entry says 10"):
        read(plain(schema), task(tmp_path / "f.orc", key=None, file_format="ORC", record_count=10))
    whole = Path(file.path).read_bytes()
    for data in (whole[:-5], b"", b"PAR1" * 9):
        Path(file.path).write_bytes(data)
        with pytest.raises(FormatError, match=r"f\.orc is not an ORC file that can be read"):
            read(plain(schema), file)
    Path(file.path).unlink()
    with pytest.raises(FileNotFoundError):
        read(plain(schema), file)


def test_an_attribute_that_java_does_not_write(tmp_path: Path) -> None:
    file = written(tmp_path / "f.orc", pa.schema([pa.field("a", pa.int64(), metadata={"iceberg.id": "one"})]), [{"a": 1}])
    with pytest.raises(FormatError, match="attributes of its ORC types"):
        read(plain(Schema(opt(1, "a", ice.LongType()))), file)
    file = written(tmp_path / "g.orc", pa.schema([stored("u", pa.binary(), 1, binary_type="UUID")]), [{"u": b"short"}])
    with pytest.raises(FormatError, match="a value that is not of its column's type"):
        read(plain(Schema(opt(1, "u", ice.UUIDType()))), file)


def test_no_encrypted_table_reads_it(tmp_path: Path) -> None:
    """Iceberg cannot encrypt ORC: one with a key is none, and one without is plain."""
    file = written(tmp_path / "f.orc", pa.schema([stored("a", pa.int64(), 1)]), [{"a": 1}])
    schema = Schema(opt(1, "a", ice.LongType()))
    with pytest.raises(PolicyError, match="is in ORC"):
        read_task(context(schema), file)
    keyed = task(Path(file.path), key=metadata(Path(file.path)), file_format="ORC", record_count=1)
    with pytest.raises(PolicyError, match="is in ORC"):
        read_task(plain(schema), keyed)
