"""The parts that need no Spark session: types, batches, splits, filters, settings."""

from __future__ import annotations

import datetime as dt
import importlib
import inspect
import logging
import pkgutil
import tempfile
import uuid
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyiceberg import expressions as ex
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyspark.sql import datasource as ds
from pyspark.sql.pandas.types import to_arrow_schema

import icelock.spark
from icelock.errors import CommitError, FormatError, IntegrityError, PolicyError
from icelock.keys.entropy import SystemEntropy
from icelock.plan.task import ScanTask
from icelock.spark.columns.batches import spark_batch
from icelock.spark.columns.filters import FilterTranslator
from icelock.spark.columns.types import arrow_schema, spark_schema
from icelock.spark.native import reach
from icelock.spark.sealed.job import Action, Job
from icelock.spark.sealed.ticket import PlannedWrite, Ticket
from icelock.spark.settings.catalogs import executor_properties, open_catalog
from icelock.spark.settings.options import ReadOptions, TableName
from icelock.spark.settings.session import Settings
from icelock.spark.task.splits import plan_splits

pytestmark = pytest.mark.spark43

MIB = 1 << 20
JVM_NAMES = [
    ("ANSI_X3.4-1968", "file:///wh/a.parquet", True),
    ("ANSI_X3.4-1968", "file:///wh/\u65e5/a.parquet", False),
    ("ANSI_X3.4-1968", "/wh/\u65e5/a.parquet", False),
    ("UTF-8", "file:///wh/\u65e5/a.parquet", True),
    ("ISO-8859-1", "file:///wh/\u00e9/a.parquet", True),
    ("ISO-8859-1", "file:///wh/\u65e5/a.parquet", False),
    ("x-unknown", "file:///wh/\u65e5/a.parquet", True),
]


def field(number, name, kind, *, required=False):
    return ice.NestedField(number, name, kind, required=required)


UUIDS = ice.ListType(11, ice.UUIDType(), element_required=True)
WIDE = Decimal("1234567890123456789012345678.0123456789")
SCHEMA = Schema(
    field(1, "id", ice.LongType(), required=True),
    field(2, "f", ice.FloatType()),
    field(3, "dec", ice.DecimalType(38, 10)),
    field(4, "ts", ice.TimestamptzType()),
    field(5, "ntz", ice.TimestampType()),
    field(6, "u", ice.UUIDType()),
    field(7, "fx", ice.FixedType(3)),
    field(8, "st", ice.StructType(field(9, "x", ice.IntegerType(), required=True), field(10, "ls", UUIDS))),
    field(12, "m", ice.MapType(13, ice.StringType(), 14, ice.FixedType(2), value_required=False)),
    field(15, "a.b", ice.IntegerType()),
)  # fmt: skip


def test_arrow_form_is_pysparks():
    """C-51: what PySpark 4.3 compares batches with, and 4.1 hands to the JVM unseen."""
    schema = spark_schema(SCHEMA, table="t")
    zone = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    assert arrow_schema(schema) == to_arrow_schema(schema, **zone)


def test_docs_become_comments():
    schema = Schema(ice.NestedField(1, "id", ice.LongType(), required=True, doc="the id"))
    assert spark_schema(schema, table="t").fields[0].metadata == {"comment": "the id"}


U = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
_IDS = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([U.bytes, bytes(16), U.bytes], pa.binary(16)))
_MAYBE = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([U.bytes, None, None, bytes(16)], pa.binary(16)))
BATCH = pa.table(
    {
        "u": pa.array([U.bytes, None, bytes(16), U.bytes], pa.uuid()),
        "fx": pa.array([b"abc", None, b"\0\0\0", b"xyz"], pa.binary(3)),
        "ls": pa.ListArray.from_arrays(pa.array([0, 1, None, 1, 3], pa.int32()), _IDS),
        "st": pa.StructArray.from_arrays([_MAYBE], names=["u"], mask=pa.array([False, False, True, False])),
        "m": pa.array([[("a", b"xy")], [], None, [("b", None)]], pa.map_(pa.string(), pa.binary(2))),
    }
).to_batches()[0]
FORM = pa.schema(
    [
        ("u", pa.string()),
        ("fx", pa.binary()),
        ("ls", pa.list_(pa.field("element", pa.string()))),
        ("st", pa.struct([("u", pa.string())])),
        ("m", pa.map_(pa.string(), pa.binary())),
    ]
)
ZERO = "00000000-0000-0000-0000-000000000000"
ROWS = [
    {"u": str(U), "fx": b"abc", "ls": [str(U)], "st": {"u": str(U)}, "m": [("a", b"xy")]},
    {"u": None, "fx": None, "ls": [], "st": {"u": None}, "m": []},
    {"u": ZERO, "fx": bytes(3), "ls": None, "st": None, "m": None},
    {"u": str(U), "fx": b"xyz", "ls": [ZERO, str(U)], "st": {"u": ZERO}, "m": [("b", None)]},
]


@pytest.mark.parametrize("rows", [slice(0, 4), slice(1, 4), slice(2, 3), slice(3, 4), slice(0, 0)])
def test_batches_take_sparks_form_whatever_slice_they_are(rows):
    got = spark_batch(BATCH.slice(rows.start, rows.stop - rows.start), FORM)
    assert got.schema == FORM
    assert got.to_pylist() == ROWS[rows]
    got.validate(full=True)


def test_columns_in_the_right_form_are_not_copied():
    batch = pa.record_batch({"id": pa.array([1, 2, 3])})
    assert spark_batch(batch, batch.schema).column(0).buffers()[1].address == batch.column(0).buffers()[1].address


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array([1, None]), pa.int64()),
        (pa.array([{"x": 1}, {"x": None}]), pa.struct([pa.field("x", pa.int64(), nullable=False)])),
        (pa.array([[1, None]]), pa.list_(pa.field("element", pa.int64(), nullable=False))),
    ],
)
def test_nulls_that_spark_was_not_told_of_are_refused(array, kind):
    """The JVM would read them as zeros."""
    schema = pa.schema([pa.field("c", kind, nullable=not pa.types.is_int64(kind))])
    with pytest.raises(FormatError, match="has nulls, but it is required"):
        spark_batch(pa.record_batch([array], names=["c"]), schema)


def tasks(*sizes):
    return [
        ScanTask(
            path=f"f{n}",
            file_format="PARQUET",
            key_metadata=None,
            file_size=size,
            record_count=1,
            spec_id=0,
            partition=(Decimal(1), U, None),
        )
        for n, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("sizes", "parallelism", "wanted"),
    [
        ([], 2, [[]]),
        ([10], 4, [["f0"]]),
        ([10, 10, 10], 2, [["f0", "f2"], ["f1"]]),
        ([10 * MIB] * 4, 8, [["f0"], ["f1"], ["f2"], ["f3"]]),
        ([300 * MIB, 1, 1, 1], 2, [["f0"], ["f1", "f3"], ["f2"]]),  # 312 MiB: three splits of 128
        ([100 * MIB, 60 * MIB, 60 * MIB, 30 * MIB], 2, [["f0", "f3"], ["f1", "f2"]]),
    ],
)
def test_files_are_divided_evenly(sizes, parallelism, wanted):
    splits = plan_splits(tasks(*sizes), {}, parallelism=parallelism)
    assert [[task.path for task in split.tasks] for split in splits] == wanted
    assert all(task.partition == (Decimal(1), U, None) for split in splits for task in split.tasks)


def test_split_sizes_follow_the_tables_properties():
    assert (
        len(plan_splits(tasks(*[MIB] * 8), {"read.split.target-size": str(2 * MIB), "read.split.open-file-cost": "1"}, parallelism=1)) == 4
    )
    with pytest.raises(PolicyError, match=r"read\.split\.target-size is '0'"):
        plan_splits(tasks(1), {"read.split.target-size": "0"}, parallelism=1)


def translate(pushed):
    return FilterTranslator(SCHEMA, SCHEMA).translate(pushed)


@pytest.mark.parametrize(
    "pushed",
    [
        ds.StringEndsWith(("m",), "x"),
        ds.StringContains(("id",), "x"),
        ds.EqualTo(("st",), {"x": 1}),
        ds.IsNull(("m",)),
        ds.IsNotNull(("st",)),
        ds.EqualTo(("nope",), 1),
        ds.EqualTo(("st", "nope"), 1),
        ds.EqualTo(("id",), "1"),
        ds.EqualTo(("id",), value=True),
        ds.EqualTo(("dec",), Decimal("0.00000000001")),
        ds.EqualTo(("ts",), dt.datetime(2024, 1, 1)),  # noqa: DTZ001 - a time without a zone
        ds.EqualTo(("ntz",), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
        ds.GreaterThan(("u",), str(U)),
        ds.EqualTo(("u",), str(U).upper()),
        ds.In(("u",), (str(U), "no uuid")),
        ds.EqualTo(("fx",), b"ab"),
        ds.StringStartsWith(("u",), "f7"),
    ],
)
def test_what_has_no_exact_translation_goes_back(pushed):
    assert translate(pushed) is None
    assert translate(ds.Not(pushed)) is None


@pytest.mark.parametrize(
    ("pushed", "wanted"),
    [
        (ds.EqualTo(("id",), 1), ex.EqualTo("id", 1)),
        (ds.Not(ds.Not(ds.EqualTo(("id",), 1))), ex.EqualTo("id", 1)),
        (ds.EqualTo(("id",), None), ex.AlwaysFalse()),
        (ds.GreaterThan(("f",), 5.0), ex.Or(ex.GreaterThan("f", 5.0), ex.IsNaN("f"))),
        (ds.Not(ds.GreaterThan(("f",), 5.0)), ex.LessThanOrEqual("f", 5.0)),
        (ds.LessThan(("f",), float("nan")), ex.And(ex.NotNull("f"), ex.NotNaN("f"))),
        (ds.Not(ds.EqualTo(("id",), 1)), ex.And(ex.NotNull("id"), ex.NotEqualTo("id", 1))),
        (ds.In(("f",), (0.0, 2.0, None)), ex.Or(ex.EqualTo("f", 0.0), ex.EqualTo("f", 2.0))),
        (ds.Not(ds.In(("id",), (1, None))), ex.AlwaysFalse()),
        (ds.EqualTo(("dec",), Decimal("1.5")), ex.EqualTo("dec", Decimal("1.5000000000"))),
        (ds.EqualTo(("dec",), WIDE), ex.EqualTo("dec", WIDE)),
        (ds.EqualTo(("u",), str(U)), ex.EqualTo("u", U)),
        (ds.EqualTo(("fx",), bytearray(b"abc")), ex.EqualTo("fx", b"abc")),
        (ds.EqualTo(("a.b",), 1), ex.EqualTo("a.b", 1)),
        (ds.EqualTo(("st", "x"), 1), ex.EqualTo("st.x", 1)),
    ],
)  # fmt: skip
def test_translations(pushed, wanted):
    assert translate(pushed) == wanted


def test_a_ticket_opens_once_and_only_unchanged():
    job = Job(action=Action.APPEND, table=TableName.parse("c.a.b"))
    write = PlannedWrite(job=job, properties={"kms.x": "secret"}, table_uuid="u")
    ticket = Ticket.issue(write, SystemEntropy())
    assert ticket.redeem() == write
    with pytest.raises(CommitError, match="nothing is committed"):
        ticket.redeem()
    assert not ticket.discard()
    other = Ticket.issue(write, SystemEntropy())
    wrong = Ticket(other._path, bytes(32))
    with pytest.raises(IntegrityError):
        wrong.redeem()
    assert "secret" not in repr(write) + repr(other)


def test_table_names():
    assert TableName.parse("c.a.b.t") == TableName(catalog="c", identifier=("a", "b", "t"))
    for wrong in ("", "c", "c.t", "c..t", "c.a."):
        with pytest.raises(PolicyError, match=r"catalog\.namespace\.table"):
            TableName.parse(wrong)
    with pytest.raises(PolicyError, match="no table is named"):
        ReadOptions.parse({})


def test_storage_settings_are_an_allow_list():
    given = {
        "s3.endpoint": "a",
        "py-io-impl": "b",
        "uri": "c",
        "token": "d",
        "kms.x": "e",
        "my.x": "f",
        "warehouse": "g",
        "client.region": "h",
    }
    assert executor_properties(given, {}) == {"s3.endpoint": "a", "py-io-impl": "b", "client.region": "h"}


class FakeConf(dict):
    def get(self, name, default=None):
        return super().get(name, default)

    def set(self, name, value):
        self[name] = value


class FakeSession:
    """What ``register`` uses of a Connect session."""

    def __init__(self, **conf):
        self.conf = FakeConf({name.replace("_", "."): value for name, value in conf.items()})
        self.registered = []
        self.dataSource = self
        self.createDataFrame = None  # by which a session is known

    def register(self, source):
        self.registered.append(source)

    @property
    def settings(self) -> Settings:
        return self.registered[-1].settings


@pytest.mark.parametrize(
    ("conf", "plain"),
    [
        ({"spark.master": "local[2]"}, False),
        ({"spark.master": "local"}, False),
        ({"spark.master": "local-cluster[2,1,1024]"}, True),
        ({"spark.master": "spark://host:7077"}, True),
        ({}, True),
        ({"spark.master": "yarn", "spark.network.crypto.enabled": "true"}, False),
        ({"spark.master": "yarn", "spark.ssl.rpc.enabled": "TRUE"}, False),
        ({"spark.master": "yarn", "spark.network.crypto.enabled": "false"}, True),
    ],
)
def test_keys_on_a_plain_wire_are_told_once(conf, plain, caplog):
    caplog.set_level(logging.WARNING)
    session = FakeSession()
    session.conf.update(conf)
    icelock.spark.register(session, {"c": {"uri": "sqlite://", "icelock.spark.plain-rpc": "refuse"}})
    assert caplog.records == []  # nothing can go over the wire
    for _ in range(3):
        icelock.spark.register(session, {"c": {"uri": "sqlite://", "icelock.spark.plain-rpc": "refuse"}, "d": {"uri": "sqlite://"}})
        assert session.settings.plain_rpc is plain
    told = [record for record in caplog.records if "cross the network in the clear" in record.message]
    assert len(told) == int(plain)


def test_keys_on_a_plain_wire_are_told_for_catalogs_that_are_configured_elsewhere(caplog):
    """PyIceberg's configuration file may name any; what it says of them is not known yet."""
    caplog.set_level(logging.WARNING)
    icelock.spark.register(FakeSession(spark_master="yarn"))
    assert [record.message for record in caplog.records if "cross the network in the clear" in record.message]


def test_no_module_takes_the_place_of_a_function():
    """Python sets a module that is imported later as an attribute of its package, over a function of that name."""
    for module in pkgutil.iter_modules(icelock.spark.__path__):
        importlib.import_module(f"icelock.spark.{module.name}")
    assert [name for name in icelock.spark.__all__ if not inspect.isfunction(getattr(icelock.spark, name))] == ["ChangeResult"]


def test_a_catalog_in_memory_of_one_process_is_refused(tmp_path, monkeypatch):
    """Each process that plans would have an empty one of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(PolicyError, match=r"catalog m is in the memory of one process.*use type sql"):
        open_catalog("m", {"type": "in-memory"})
    assert list(tmp_path.iterdir()) == []


def test_keys_on_a_plain_wire_are_refused_when_asked_for(lake):
    from icelock.spark.driver.source import data_source  # noqa: PLC0415

    session = FakeSession(spark_master="yarn")
    icelock.spark.register(session, {"test": lake.properties(**{"icelock.spark.plain-rpc": "refuse"})})
    for source in (session.registered[0], data_source(session.settings)):
        with pytest.raises(PolicyError, match="cross the network in the clear"):
            source({"path": "test.db.t"}).schema()


@pytest.mark.parametrize(("encoding", "path", "fine"), JVM_NAMES)
def test_a_jvm_that_has_no_name_for_a_file(encoding, path, fine):
    """In a container without a locale: the file would not be there, and a task would say that its snapshot was expired."""
    system = SimpleNamespace(getProperty=lambda name: {"sun.jnu.encoding": encoding}[name])
    spark = SimpleNamespace(_jvm=SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system))))
    reason = reach.unreachable(spark, [replace(task, path=name) for task, name in zip(tasks(1, 1), ("/wh/a.parquet", path), strict=True)])
    assert (reason is None) == fine
    assert fine or (path in reason and encoding in reason)


def test_push_down_needs_the_jvm():
    """A Connect session has none: no push-down, and Spark's setting is left alone."""
    session = FakeSession(spark_master="local")
    icelock.spark.register(session)
    assert not session.settings.push_down
    assert "spark.sql.python.filterPushdown.enabled" not in session.conf
