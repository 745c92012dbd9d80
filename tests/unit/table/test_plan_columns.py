"""A plan made of columns is the plan made row by row: the same tasks in the same order, for manifests of every kind."""

from __future__ import annotations

import decimal
import io
import itertools
import json
import logging
import math
import re
import struct
import sys
import uuid
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import fastavro
import polars as pl  # noqa: F401 - few entries are read as columns only if it is in use
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pyiceberg import expressions as ex
from pyiceberg import types as ice
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, DataFileContent, FileFormat, ManifestContent, ManifestEntryStatus
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.typedef import Record

from icelock.errors import FormatError
from icelock.format.key_metadata import encode_long
from icelock.io.avro.read import AvroFile
from icelock.io.file_io import open_input
from icelock.io.plain_input import PlainBytes
from icelock.keys.entropy import SystemEntropy, mint_file_key
from icelock.metadata.manifest import DataFile, ManifestEntry, ManifestFile, decode_entries, set_place
from icelock.metadata.manifest_writer import EncryptedManifestWriter
from icelock.plan.manifest_columns import ManifestColumns
from icelock.plan.planner import Planner
from icelock.plan.task import ScanTask, TaskBuilder
from tests.lakes.sqlite import KEYED, TestLake

TYPES = {
    "flag": ice.BooleanType(),
    "number": ice.IntegerType(),
    "big": ice.LongType(),
    "small": ice.FloatType(),
    "real": ice.DoubleType(),
    "day": ice.DateType(),
    "clock": ice.TimeType(),
    "moment": ice.TimestampType(),
    "instant": ice.TimestamptzType(),
    "text": ice.StringType(),
    "id": ice.UUIDType(),
    "raw": ice.BinaryType(),
    "four": ice.FixedType(4),
    "money": ice.DecimalType(9, 2),
    "long_money": ice.DecimalType(24, 3),
}
NAMES = list(TYPES)
SCHEMA = Schema(*(ice.NestedField(i, name, kind, required=False) for i, (name, kind) in enumerate(TYPES.items(), 1)))


def by(spec_id: int, *fields: tuple[str, Any]) -> PartitionSpec:
    made = (
        PartitionField(source_id=NAMES.index(name) + 1, field_id=1000 + 20 * spec_id + i, transform=transform, name=f"{name} {transform}")
        for i, (name, transform) in enumerate(fields)
    )
    return PartitionSpec(*made, spec_id=spec_id)


SPECS = [
    UNPARTITIONED_PARTITION_SPEC,
    by(1, ("number", IdentityTransform())),
    by(2, ("real", IdentityTransform()), ("big", BucketTransform(4)), ("text", TruncateTransform(2))),
    by(
        3,
        *((name, IdentityTransform()) for name in ("id", "money", "long_money", "four", "flag", "day", "small", "raw", "instant", "clock")),
    ),
    by(4, ("instant", DayTransform()), ("moment", HourTransform()), ("number", VoidTransform())),
]
FLOATS = st.sampled_from([math.nan, -0.0, 0.0, 1.5, -1.5, math.inf, -math.inf])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "number": st.integers(-3, 3),
    "big": st.sampled_from([-(1 << 62), -1, 0, 1, 1 << 62]),
    "small": FLOATS,
    "real": FLOATS,
    "day": st.integers(-3, 3),
    "clock": st.integers(0, 3),
    "moment": st.sampled_from([-1, 0, 3_600_000_000, 86_400_000_000]),
    "instant": st.sampled_from([-1, 0, 3_600_000_000, 86_400_000_000]),
    "text": st.sampled_from(["", "a", "ab", "abc", "b", "é", "\ud7ff", "\U0001f600"]),
    "id": st.sampled_from([uuid.UUID(int=number).bytes for number in (0, 1, 1 << 127)]),
    "raw": st.sampled_from([b"", b"a", b"\xff"]),
    "four": st.sampled_from([bytes(4), b"abcd", b"\xff" * 4]),
    "money": st.sampled_from([decimal.Decimal(text) for text in ("0.00", "1.27", "-1.29")]),
    "long_money": st.sampled_from([decimal.Decimal(text) for text in ("0.000", "123456789012345678.001", "-0.001")]),
}
RESULTS = {
    "bucket": st.integers(0, 3),
    "truncate": st.sampled_from(["", "a", "ab"]),
    "day": st.integers(-1, 1),
    "hour": st.integers(-1, 25),
}


@st.composite
def partitions(draw: st.DrawFn, spec: PartitionSpec) -> Record:
    values = []
    for field in spec.fields:
        kind = str(field.transform).split("[", maxsplit=1)[0]
        of_type = RESULTS.get(kind, VALUES[NAMES[field.source_id - 1]])
        values.append(None if kind == "void" else draw(st.none() | of_type))
    return Record(*values)


def stored(name: str, value: Any) -> bytes:
    return to_bytes(TYPES[name], value)


@st.composite
def metrics(draw: st.DrawFn, names: list[str]) -> dict[str, Any]:
    """Bounds need not fit each other, as those of a broken writer; a long or double may have a bound from before it was promoted."""
    if draw(st.integers(0, 9)) == 0:
        return {}
    made: dict[str, dict[int, Any]] = {
        name: {} for name in ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    }
    for name in names:
        field_id = NAMES.index(name) + 1
        for count in ("value_counts", "null_value_counts", "nan_value_counts"):
            if draw(st.booleans()):
                made[count][field_id] = draw(st.sampled_from([0, 5, 10]))
        for bound in ("lower_bounds", "upper_bounds"):
            if draw(st.integers(0, 4)):
                made[bound][field_id] = stored(name, draw(VALUES[name]))
                if name in ("big", "real") and draw(st.integers(0, 5)) == 0:
                    made[bound][field_id] = struct.pack("<i" if name == "big" else "<f", 1)
    return {name: values if values or draw(st.booleans()) else None for name, values in made.items()}


@st.composite
def entries(draw: st.DrawFn, spec: PartitionSpec, content: ManifestContent, paths: itertools.count[int], names: list[str]) -> ManifestEntry:
    number = next(paths)
    fields: dict[str, Any] = {
        "content": DataFileContent.DATA,
        "file_path": f"file:/t/{number}-é.parquet",
        "file_format": draw(st.sampled_from([FileFormat.PARQUET, FileFormat.AVRO])),
        "partition": draw(partitions(spec)),
        "record_count": draw(st.sampled_from([10, 10, 7, 0])),
        "file_size_in_bytes": 1000 + number,
        "key_metadata": mint_file_key(SystemEntropy(), 16).closed(1000 + number).encode(),  # type: ignore[arg-type]
        **draw(metrics(names)),
    }
    if content == ManifestContent.DELETES:
        fields.update(draw(deletes(number, names)))
    status = draw(
        st.sampled_from(
            [ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED]
        )
    )
    written: dict[str, Any] = {"snapshot_id": 7}
    if status != ManifestEntryStatus.ADDED:
        sequence = draw(st.integers(1, 6))
        written |= {"sequence_number": sequence, "file_sequence_number": sequence}
        if content == ManifestContent.DATA:
            fields["first_row_id"] = draw(st.none() | st.integers(0, 99))
    file = DataFile.from_args(**fields)
    file.spec_id = spec.spec_id
    return ManifestEntry.from_args(status=status, data_file=file, **written)


@st.composite
def deletes(draw: st.DrawFn, number: int, names: list[str]) -> dict[str, Any]:
    kind = draw(st.sampled_from(["equality", "positions", "named", "vector"]))
    if kind == "equality":
        ids = draw(st.lists(st.sampled_from([NAMES.index(name) + 1 for name in names]), min_size=1, max_size=2, unique=True))
        return {"content": DataFileContent.EQUALITY_DELETES, "equality_ids": ids}
    made: dict[str, Any] = {"content": DataFileContent.POSITION_DELETES}
    if kind == "vector":  # of a file that may be there; each of another
        made |= {"file_format": FileFormat.PUFFIN, "content_offset": 4, "content_size_in_bytes": 40}
    if kind != "positions":
        made["referenced_data_file"] = f"file:/t/{number % 1000 + draw(st.sampled_from([0, 500, 500, 500]))}-é.parquet"
    return made


Written = list[tuple[int, ManifestContent, list[ManifestEntry]]]


@st.composite
def snapshots(draw: st.DrawFn, names: list[str]) -> Written:
    made: Written = []
    for content, first, most in ((ManifestContent.DATA, 0, 3), (ManifestContent.DELETES, 1000, 2)):
        paths = itertools.count(first)
        for _ in range(draw(st.integers(1 if first == 0 else 0, most))):
            spec_id = draw(st.integers(0, len(SPECS) - 1))
            made.append((spec_id, content, draw(st.lists(entries(SPECS[spec_id], content, paths, names), min_size=1, max_size=6))))
    return made


LITERALS = {**VALUES, "small": st.sampled_from([-0.0, 0.0, 1.5]), "real": st.sampled_from([-0.0, 0.0, 1.5, math.inf])}


@st.composite
def predicates(draw: st.DrawFn, names: list[str]) -> ex.BooleanExpression:
    name = draw(st.sampled_from(names))
    one = LITERALS[name]
    kind = draw(
        st.sampled_from(
            [
                ex.IsNull,
                ex.NotNull,
                ex.EqualTo,
                ex.NotEqualTo,
                ex.LessThan,
                ex.LessThanOrEqual,
                ex.GreaterThan,
                ex.GreaterThanOrEqual,
                ex.In,
                ex.NotIn,
            ]
        )
    )
    if kind in (ex.IsNull, ex.NotNull):
        return kind(name)
    if kind in (ex.In, ex.NotIn):
        return kind(name, draw(st.lists(one, min_size=1, max_size=4)))
    if name == "text" and draw(st.booleans()):
        return draw(st.sampled_from([ex.StartsWith, ex.NotStartsWith]))(name, draw(one))
    if name in ("small", "real") and draw(st.booleans()):
        return draw(st.sampled_from([ex.IsNaN, ex.NotNaN]))(name)
    return kind(name, draw(one))


def filters(names: list[str]) -> st.SearchStrategy[ex.BooleanExpression]:
    one = predicates(names)
    return (
        one
        | one.map(ex.Not)
        | st.builds(ex.And, one, one)
        | st.builds(ex.Or, one, one)
        | st.builds(ex.And, st.builds(ex.Or, one, one).map(ex.Not), one)
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Written, list[ex.BooleanExpression]]:
    """A snapshot, and filters on the few columns that it has metrics of."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    return draw(snapshots(names)), draw(st.lists(filters(names), min_size=6, max_size=12))


class Place:
    """Writes manifests into a table's folder, and plans them both ways."""

    def __init__(self, lake: TestLake) -> None:
        self.table = lake.catalog().create_table("db.t", SCHEMA, properties=KEYED)
        self.metadata = self.table.metadata.model_copy(update={"partition_specs": SPECS})
        self._names = itertools.count()
        self.planned: list[Any] = []

    def write(self, snapshot: Written) -> list[Any]:
        manifests = []
        for spec_id, content, members in snapshot:
            writer = EncryptedManifestWriter(
                self.table.io,
                location=f"{self.table.location()}/metadata/{next(self._names)}-m.avro",
                spec=SPECS[spec_id],
                schema=SCHEMA,
                snapshot_id=7,
                content=content,
            )
            with writer:
                for entry in members:
                    writer.add_entry(entry)
            manifest = writer.to_manifest_file()
            manifest.sequence_number, manifest.min_sequence_number = 6, 1
            manifest.first_row_id = 1000 if content == ManifestContent.DATA else None
            manifests.append(manifest)
        return manifests

    def planner(self, row_filter: ex.BooleanExpression) -> Planner:
        return Planner(table_metadata=self.metadata, io=self.table.io, row_filter=row_filter)

    def by_row(self, manifests: list[Any], row_filter: ex.BooleanExpression) -> list[ScanTask]:
        with patch("icelock.plan.planner.columns_pay", lambda _: False):
            return self.files(manifests, row_filter)

    def files(self, manifests: list[Any], row_filter: ex.BooleanExpression) -> list[ScanTask]:
        planner = self.planner(row_filter)
        self.planned = planner.plan_files(manifests)
        build = TaskBuilder(planner.schemas).build
        return [build(task) for task in self.planned]

    def by_columns(self, manifests: list[Any], row_filter: ex.BooleanExpression) -> list[ScanTask]:
        with patch("icelock.plan.columnar._FEW_OF_ONE", 0):
            found, planned = self.planner(row_filter).planned(manifests)
            return [task for files in planned for task in files.tasks(found)]


@pytest.fixture
def place(lake: TestLake) -> Place:
    return Place(lake)


def seen(plan: Any, *arguments: Any) -> Any:
    """Return all of a plan, with NaN and the sign of zero told apart and keys shown; or the type of its error."""
    try:
        tasks = plan(*arguments)
    except Exception as e:  # noqa: BLE001 - PyIceberg raises what it likes for filters that it cannot compare
        return type(e)
    keys = [[None if at.key_metadata is None else at.key_metadata.reveal() for at in (task, *task.deletes)] for task in tasks]
    return [repr(task) for task in tasks], keys


def files(place: Place) -> list[str]:
    """All that PyIceberg's tasks say of their files."""
    plain = ([dict(value) if isinstance(value, Mapping) else value for value in task.file._data] for task in place.planned)
    besides = ((f.spec_id, f.sequence_number, f.file_sequence_number, f.fresh) for f in (task.file for task in place.planned))
    return [repr((values, *more, task.residual)) for values, more, task in zip(plain, besides, place.planned, strict=True)]


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(case=cases())
def test_both_ways_give_the_same_tasks_in_the_same_order(place: Place, case: tuple[Written, list[ex.BooleanExpression]]) -> None:
    snapshot, row_filters = case
    manifests = place.write(snapshot)
    for row_filter in (ex.AlwaysTrue(), *row_filters):
        wanted = seen(place.by_row, manifests, row_filter)
        event(f"the plan is {wanted.__name__ if isinstance(wanted, type) else bool(wanted[0])}")
        assert seen(place.by_columns, manifests, row_filter) == wanted, row_filter
        whole = files(place)
        with patch("icelock.plan.columnar._FEW_OF_ONE", 0):
            assert seen(place.files, manifests, row_filter) == wanted, row_filter
        assert files(place) == whole


# --- manifests of other shapes, and damaged ones


def sample(place: Place) -> Any:
    """A manifest of three files with everything in it."""
    members = []
    for number in range(3):
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"file:/t/{number}.parquet",
            file_format=FileFormat.PARQUET,
            partition=Record(number),
            record_count=10,
            file_size_in_bytes=1000,
            key_metadata=mint_file_key(SystemEntropy(), 16).closed(1000).encode(),  # type: ignore[arg-type]
            column_sizes={2: 40},
            value_counts={2: 10},
            null_value_counts={2: 0},
            nan_value_counts={},
            lower_bounds={2: to_bytes(ice.IntegerType(), number)},
            upper_bounds={2: to_bytes(ice.IntegerType(), number)},
            split_offsets=[4],
            sort_order_id=0,
        )
        file.spec_id = 1
        members.append(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=7, data_file=file))
    (manifest,) = place.write([(1, ManifestContent.DATA, members)])
    return manifest


def plain_bytes(place: Place, manifest: Any) -> bytes:
    with open_input(place.table.io, manifest.manifest_path, manifest.key_metadata).open() as stream:
        return stream.read()


def stored_again(place: Place, manifest: Any, plain: bytes) -> Any:
    """Encrypt other plain bytes under another name, and list them in the manifest's place."""
    output = place.table.io.new_encrypted_output(f"{manifest.manifest_path}-{uuid.uuid4()}")
    with output.create() as stream:
        stream.write(plain)
    return relisted(manifest, manifest_path=output.location, key_metadata=output.key_metadata.encode())


def relisted(manifest: Any, **changes: Any) -> ManifestFile:
    names = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[3].fields]
    return ManifestFile.from_args(**{**dict(zip(names, manifest._data, strict=True)), **changes})


def rewritten(place: Place, manifest: Any, change: Any, codec: str = "deflate") -> Any:
    """Write the manifest's rows with a changed schema and in another codec."""
    reader = fastavro.reader(io.BytesIO(plain_bytes(place, manifest)))
    schema, rows = reader.writer_schema, list(reader)
    data_file = next(field for field in schema["fields"] if field["name"] == "data_file")["type"]
    change(schema["fields"], data_file["fields"], rows)
    out = io.BytesIO()
    fastavro.writer(out, schema, rows, codec=codec, sync_interval=1)
    return stored_again(place, manifest, out.getvalue())


def named(fields: list[Any], name: str) -> Any:
    return next(field for field in fields if field["name"] == name)


def no_change(_entry: list[Any], _file: list[Any], _rows: list[Any]) -> None:
    pass


def more_fields(_entry: list[Any], file: list[Any], rows: list[Any]) -> None:
    file.insert(0, {"name": "block_size_in_bytes", "field-id": 105, "type": "long"})
    file.append({"name": "later", "field-id": 999, "type": ["null", "string"], "default": None})
    for row in rows:
        row["data_file"]["block_size_in_bytes"] = 1


def fewer_fields(_entry: list[Any], file: list[Any], _rows: list[Any]) -> None:
    gone = ("content", "first_row_id", "nan_value_counts", "referenced_data_file", "content_offset", "content_size_in_bytes")
    file[:] = [field for field in file if field["name"] not in gone]


def other_names_and_order(entry: list[Any], file: list[Any], rows: list[Any]) -> None:
    """Fields are found by their ids."""
    entry.reverse()
    named(file, "file_path")["name"] = "path"
    for row in rows:
        row["data_file"]["path"] = row["data_file"].pop("file_path")


def value_before_null(entry: list[Any], file: list[Any], _rows: list[Any]) -> None:
    for field in (*entry, *file):
        if isinstance(field["type"], list):
            field["type"].reverse()
            field.pop("default", None)


def a_map_of_text_keys(_entry: list[Any], file: list[Any], _rows: list[Any]) -> None:
    file.append(
        {"name": "later", "field-id": 999, "type": {"type": "map", "values": "long", "key-id": 997, "value-id": 998}, "default": {}}
    )


def three_branches(entry: list[Any], _file: list[Any], _rows: list[Any]) -> None:
    named(entry, "snapshot_id")["type"] = ["null", "long", "string"]


def an_unknown_format(_entry: list[Any], _file: list[Any], rows: list[Any]) -> None:
    rows[1]["data_file"]["file_format"] = "LANCE"


def delete_files(_entry: list[Any], _file: list[Any], rows: list[Any]) -> None:
    rows[1]["data_file"]["content"] = 1


def no_path(_entry: list[Any], file: list[Any], rows: list[Any]) -> None:
    named(file, "file_path")["type"] = ["null", "string"]
    rows[1]["data_file"]["file_path"] = None


SHAPES = {
    # whether the columnar reader takes it
    no_change: True,
    more_fields: True,
    fewer_fields: True,
    other_names_and_order: True,
    a_map_of_text_keys: False,
    three_branches: False,
    value_before_null: False,
    an_unknown_format: False,
    delete_files: False,
    no_path: False,
}
REFUSED = (delete_files, a_map_of_text_keys, three_branches, value_before_null, an_unknown_format)


@pytest.mark.turns(3)
@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
@pytest.mark.parametrize("change", SHAPES)
def test_manifests_of_other_writers_give_the_same_tasks(place: Place, caplog: Any, change: Any, codec: str) -> None:
    manifest = rewritten(place, sample(place), change, codec)
    caplog.set_level(logging.DEBUG, logger="icelock.plan")
    for row_filter, left in ((ex.AlwaysTrue(), 3), (ex.GreaterThan("number", 0), 2), (ex.EqualTo("big", 5), 3)):
        caplog.clear()
        found = seen(place.by_columns, [manifest], row_filter)
        assert (not caplog.messages) is SHAPES[change]
        assert found == seen(place.by_row, [manifest], row_filter)
        assert found is FormatError if change in REFUSED else len(found[0]) == left


def test_without_polars_the_plan_is_the_same(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = sample(place)
    wanted = seen(place.by_columns, [manifest], ex.GreaterThan("number", 0))
    monkeypatch.setitem(sys.modules, "polars", None)
    assert seen(place.by_columns, [manifest], ex.GreaterThan("number", 0)) == wanted
    assert len(wanted[0]) == 2


@pytest.mark.parametrize(("listed", "as_columns"), [((20, 20, 9), 0), ((20, 20, 10), 1), ((None, None, None), 0)])
def test_a_manifest_of_few_entries_is_read_row_by_row(place: Place, listed: tuple[int | None, ...], as_columns: int) -> None:
    """As its list says: those that it has, takes along and removed. The tasks are the same."""
    manifest = sample(place)
    counts = dict(zip(("added_files_count", "existing_files_count", "deleted_files_count"), listed, strict=True))
    with patch("icelock.plan.columnar.ManifestColumns", wraps=ManifestColumns) as read:
        found, planned = place.planner(ex.AlwaysTrue()).planned([relisted(manifest, **counts)])
        assert [repr(task) for files in planned for task in files.tasks(found)] == seen(place.by_row, [manifest], ex.AlwaysTrue())[0]
    assert read.call_count == as_columns


def test_entries_are_decoded_when_more_is_asked_of_a_file_than_readers_need(place: Place) -> None:
    """Then those of its block, once; what was set before stays."""
    with (
        patch("icelock.plan.columnar._FEW_OF_ONE", 0),
        patch("icelock.plan.manifest_columns.decode_entries", wraps=decode_entries) as decode,
    ):
        place.files([sample(place)], ex.GreaterThan("number", 0))
        first, second = [task.file for task in place.planned]
        shown = [
            (f.file_path, f.file_format, f.partition, f.record_count, f.file_size_in_bytes, f.first_row_id, f.content)
            for f in (first, second)
        ]
        assert shown == [
            (f"file:/t/{number}.parquet", FileFormat.PARQUET, Record(number), 10, 1000, 1000 + 10 * number, DataFileContent.DATA)
            for number in (1, 2)
        ]
        assert not decode.called
        first.first_row_id = 7
        set_place(second, path="file:/t/moved.parquet", size=2000, key_metadata=b"key")
        assert first.value_counts == {2: 10}
        assert decode.call_count == 1
    assert (first.first_row_id, first.file_path) == (7, "file:/t/1.parquet")
    assert (second.file_path, second.file_size_in_bytes, second.key_metadata) == ("file:/t/moved.parquet", 2000, b"key")
    assert second.first_row_id == 1020


def test_a_residual_is_what_the_partition_leaves_open(place: Place) -> None:
    """The files have the numbers 0, 1 and 2 (spec, "Scan Planning": a predicate that a partition decides is not in the residual)."""
    open_ = ex.EqualTo("big", 5)
    with patch("icelock.plan.columnar._FEW_OF_ONE", 0):
        place.files([sample(place)], ex.And(ex.GreaterThan("number", 0), open_))
        assert [(task.file.partition[0], task.residual) for task in place.planned] == [(1, open_), (2, open_)]
        place.files([sample(place)], ex.Or(ex.GreaterThan("number", 1), open_))
    assert [task.residual for task in place.planned[-1:]] == [ex.AlwaysTrue()]
    assert [task.residual for task in place.planned[:-1]] == [open_] * 2


def with_block(place: Place, manifest: Any, change: Any) -> Any:
    """Store a manifest's one block with another number of rows or other bytes."""
    plain = plain_bytes(place, manifest)
    avro = AvroFile(PlainBytes(location="manifest", data=plain))
    (block,) = avro.blocks()
    rows, data = change(block.rows, block.data)
    header = json.dumps(avro.schema).encode()
    parts = [b"Obj\x01", encode_long(1), encode_long(11), b"avro.schema", encode_long(len(header)), header, b"\0", bytes(16)]
    return stored_again(place, manifest, b"".join([*parts, encode_long(rows), encode_long(len(data)), data, bytes(16)]))


DAMAGE = {
    "a row more": lambda rows, data: (rows + 1, data),
    "a row less": lambda rows, data: (rows - 1, data),
    "a byte more": lambda rows, data: (rows, data + b"\0"),
    "a byte less": lambda rows, data: (rows, data[:-1]),
    "no rows": lambda _, data: (0, data),
    "a path that never ends": lambda rows, data: (
        rows,
        data.replace(b"\x1ffile:", b"\xff\xff\xff\xff\x1ffile:").replace(b"file:/t/1", b"\xff\xff\xff\xff\xff"),
    ),
    "text that is no UTF-8": lambda rows, data: (rows, data.replace(b"/t/1", b"/t\xff1")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_rows_that_are_not_those_of_their_block_are_refused_and_the_file_is_named(place: Place, damage: str) -> None:
    """PyIceberg's own reader returns the rows it finds of "a row less", "a byte more" and "no rows"."""
    manifest = with_block(place, sample(place), DAMAGE[damage])
    for plan in (place.by_columns, place.by_row):
        with pytest.raises(FormatError, match=re.escape(manifest.manifest_path)):
            plan([manifest], ex.AlwaysTrue())


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_manifest_that_is_cut_is_refused(place: Place, kept: float) -> None:
    """J-01: also when its key metadata has the cut length, as that of a writer that failed."""
    manifest = sample(place)
    plain = plain_bytes(place, manifest)
    cut = stored_again(place, manifest, plain[: int(len(plain) * kept)])
    for plan in (place.by_columns, place.by_row):
        with pytest.raises(FormatError, match=re.escape(cut.manifest_path)):
            plan([cut], ex.AlwaysTrue())


@pytest.mark.parametrize("content", list(ManifestContent))
def test_a_manifest_that_is_listed_as_one_of_the_other_content_is_refused(place: Place, content: ManifestContent) -> None:
    paths = itertools.count()
    made: dict[str, Any] = (
        {"content": DataFileContent.DATA} if content == ManifestContent.DATA else {"content": DataFileContent.POSITION_DELETES}
    )
    file = DataFile.from_args(
        file_path=f"file:/t/{next(paths)}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1000,
        key_metadata=mint_file_key(SystemEntropy(), 16).closed(1000).encode(),
        **made,  # type: ignore[arg-type]
    )
    file.spec_id = 0
    entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=7, data_file=file)
    (manifest,) = place.write([(0, content, [entry])])
    manifest = relisted(manifest, content=ManifestContent(1 - content))
    with pytest.raises(FormatError, match="is listed as a manifest of"):
        place.by_columns([manifest], ex.AlwaysTrue())
