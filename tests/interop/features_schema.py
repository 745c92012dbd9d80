"""Features of tables whose schema or partition spec changes between two appends.

Each is said twice: as SQL (or Iceberg's API) for Java, as PyIceberg's calls for icelock. What must be read is written out, now and
at the snapshot before the change (that has the schema of its time, case J-08).

Not here: changes of rows (``features_rows``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform

from tests.interop.compare import canonical
from tests.interop.features_layout import spec
from tests.interop.matrix import Append, Engines, Expected, Feature
from tests.interop.views import EVERYTHING, View

UTC: Final = dt.UTC


def evolution(
    name: str,
    title: str,
    *,
    first: pa.Table,
    then: pa.Table,
    now: pa.Table,
    java: Sequence[str] | Callable[[Engines, str], None],
    ours: Callable[[Any], None],
    where: str = "",
    group: str = "Schema evolution",
    by: tuple[tuple[str, Any], ...] = (),
    schema: Schema | None = None,
    by_sql: str = "",
) -> Feature:
    """Return a feature: ``first`` is appended, the table is changed, ``then`` is appended, ``now`` must be read.

    ``java`` is SQL or calls of Iceberg's API; ``where`` is one more thing to read; ``schema`` is for what Arrow's cannot say.
    """

    def expected(engines: Engines, table: str) -> Expected:
        old = engines.ours.table(table).snapshots()[0].snapshot_id
        views = {EVERYTHING: canonical(now), View(snapshot_id=old): canonical(first)}
        return {**views, View(where=where): None} if where else views

    def by_java(engines: Engines, table: str) -> Expected:
        engines.java.create(table, first.schema, by=by_sql)
        engines.java.insert(table, first)
        if callable(java):
            java(engines, table)
        else:
            for statement in java:
                engines.java.sql(statement, t=table)
        engines.java.insert(table, then)
        return expected(engines, table)

    def by_us(engines: Engines, table: str, append: Append) -> Expected:
        engines.ours.create(table, schema or first.schema, partition_spec=spec(first, by))
        append(table, first)
        ours(engines.ours.table(table))
        append(table, then)
        return expected(engines, table)

    return Feature(name=name, group=group, title=title, java=by_java, ours=by_us)


def table_of(**columns: tuple[pa.DataType, Sequence[Any]]) -> pa.Table:
    """Return a table from types and values by column."""
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})


I32, I64, F32, F64, TEXT = pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()
BASE: Final = table_of(id=(I64, [1, 2, 3]), a=(I32, [10, None, 30]), s=(TEXT, ["x", None, "z"]))


def _schema_change(*calls: tuple[str, tuple[Any, ...]]) -> Callable[[Any], None]:
    """Return a function that makes one schema update of several calls."""

    def change(table: Any) -> None:
        with table.update_schema() as update:
            for method, arguments in calls:
                getattr(update, method)(*arguments)

    return change


ADD = evolution(
    "evolve-add",
    "add a column",
    first=BASE,
    then=table_of(id=(I64, [4]), a=(I32, [40]), s=(TEXT, ["n"]), added=(F64, [4.5])),
    now=table_of(
        id=(I64, [1, 2, 3, 4]), a=(I32, [10, None, 30, 40]), s=(TEXT, ["x", None, "z", "n"]), added=(F64, [None, None, None, 4.5])
    ),
    java=["ALTER TABLE {t} ADD COLUMN added double"],
    ours=_schema_change(("add_column", ("added", ice.DoubleType()))),
    where="added is null",
)

DROP = evolution(
    "evolve-drop",
    "drop a column, and add one with its name: old values stay away",
    first=BASE,
    then=table_of(id=(I64, [4]), s=(TEXT, ["n"]), a=(I32, [41])),
    now=table_of(id=(I64, [1, 2, 3, 4]), s=(TEXT, ["x", None, "z", "n"]), a=(I32, [None, None, None, 41])),
    java=["ALTER TABLE {t} DROP COLUMN a", "ALTER TABLE {t} ADD COLUMN a int"],
    ours=lambda table: (
        [_schema_change(call)(table) for call in (("delete_column", ("a",)), ("add_column", ("a", ice.IntegerType())))] and None
    ),
    where="a is not null",
)

RENAME = evolution(
    "evolve-rename",
    "rename columns, and swap two names",
    first=BASE,
    then=table_of(id=(I64, [4]), s2=(I32, [40]), a=(TEXT, ["n"])),
    now=table_of(id=(I64, [1, 2, 3, 4]), s2=(I32, [10, None, 30, 40]), a=(TEXT, ["x", None, "z", "n"])),
    java=["ALTER TABLE {t} RENAME COLUMN a TO s2", "ALTER TABLE {t} RENAME COLUMN s TO a"],
    ours=lambda table: [_schema_change(("rename_column", names))(table) for names in (("a", "s2"), ("s", "a"))] and None,
    where="a = 'x' or s2 = 40",
)

REORDER = evolution(
    "evolve-reorder",
    "move columns",
    first=BASE,
    then=table_of(s=(TEXT, ["n"]), id=(I64, [4]), a=(I32, [40])),
    now=table_of(s=(TEXT, ["x", None, "z", "n"]), id=(I64, [1, 2, 3, 4]), a=(I32, [10, None, 30, 40])),
    java=["ALTER TABLE {t} ALTER COLUMN s FIRST", "ALTER TABLE {t} ALTER COLUMN a AFTER id"],
    ours=_schema_change(("move_first", ("s",)), ("move_after", ("a", "id"))),
)

PROMOTE = evolution(
    "evolve-promote",
    "promote int to long, float to double, decimal to more digits",
    first=table_of(id=(I64, [1, 2]), i=(I32, [2**31 - 1, None]), f=(F32, [1.1, None]), d=(pa.decimal128(9, 2), [Decimal("1.25"), None])),
    then=table_of(id=(I64, [3]), i=(I64, [2**40]), f=(F64, [1.1]), d=(pa.decimal128(18, 2), [Decimal("1234567890123456.78")])),
    now=table_of(
        id=(I64, [1, 2, 3]),
        i=(I64, [2**31 - 1, None, 2**40]),
        f=(F64, [1.100000023841858, None, 1.1]),
        d=(pa.decimal128(18, 2), [Decimal("1.25"), None, Decimal("1234567890123456.78")]),
    ),
    java=[
        f"ALTER TABLE {{t}} ALTER COLUMN {column} TYPE {kind}"
        for column, kind in (("i", "bigint"), ("f", "double"), ("d", "decimal(18, 2)"))
    ],
    ours=_schema_change(
        ("update_column", ("i", ice.LongType())),
        ("update_column", ("f", ice.DoubleType())),
        ("update_column", ("d", ice.DecimalType(18, 2))),
    ),
    where="i > 100 and d < 2",
)


REQUIRED = evolution(
    "evolve-required",
    "a required column becomes optional",
    first=pa.table(
        {"id": pa.array([1, 2], I64), "s": ["a", "b"]},
        schema=pa.schema([pa.field("id", I64, nullable=False), pa.field("s", TEXT, nullable=False)]),
    ),
    then=pa.table(
        {"id": pa.array([3], I64), "s": pa.array([None], TEXT)}, schema=pa.schema([pa.field("id", I64, nullable=False), ("s", TEXT)])
    ),
    now=table_of(id=(I64, [1, 2, 3]), s=(TEXT, ["a", "b", None])),
    java=["ALTER TABLE {t} ALTER COLUMN s DROP NOT NULL"],
    ours=_schema_change(("make_column_optional", ("s",))),
    where="s is null",
)

_OLD = pa.struct([("x", I32), ("y", TEXT)])
_NEW = pa.struct([("xx", I64), ("z", F64)])
_NESTED = Schema(
    ice.NestedField(1, "id", ice.LongType(), required=False),
    ice.NestedField(
        2,
        "st",
        ice.StructType(
            ice.NestedField(5, "x", ice.IntegerType(), required=False), ice.NestedField(6, "y", ice.StringType(), required=False)
        ),
        required=False,
    ),
    ice.NestedField(
        3,
        "ls",
        ice.ListType(
            7,
            ice.StructType(
                ice.NestedField(8, "x", ice.IntegerType(), required=False), ice.NestedField(9, "y", ice.StringType(), required=False)
            ),
            element_required=False,
        ),
        required=False,
    ),
    ice.NestedField(
        4,
        "m",
        ice.MapType(
            10,
            ice.StringType(),
            11,
            ice.StructType(
                ice.NestedField(12, "x", ice.IntegerType(), required=False), ice.NestedField(13, "y", ice.StringType(), required=False)
            ),
            value_required=False,
        ),
        required=False,
    ),
)


def _nested(kind: pa.DataType, ids: list[int], values: list[Any]) -> pa.Table:
    return table_of(
        id=(I64, ids),
        st=(kind, values),
        ls=(pa.list_(kind), [v and [v, None] for v in values]),
        m=(pa.map_(TEXT, kind), [v and [("k", v)] for v in values]),
    )


_PATHS: Final = ("st", "ls.element", "m.value")

NESTED = evolution(
    "evolve-nested",
    "inside struct, list and map: rename, drop, add, promote",
    first=_nested(_OLD, [1, 2], [{"x": 1, "y": "a"}, None]),
    then=_nested(_NEW, [3], [{"xx": 2**40, "z": 0.5}]),
    now=_nested(_NEW, [1, 2, 3], [{"xx": 1, "z": None}, None, {"xx": 2**40, "z": 0.5}]),
    java=[
        statement
        for path in _PATHS
        for statement in (
            f"ALTER TABLE {{t}} RENAME COLUMN {path}.x TO xx",
            f"ALTER TABLE {{t}} ALTER COLUMN {path}.xx TYPE bigint",
            f"ALTER TABLE {{t}} DROP COLUMN {path}.y",
            f"ALTER TABLE {{t}} ADD COLUMN {path}.z double",
        )
    ],
    ours=_schema_change(
        *(
            call
            for path in _PATHS
            for call in (
                ("update_column", (f"{path}.x", ice.LongType())),
                ("rename_column", (f"{path}.x", "xx")),
                ("delete_column", (f"{path}.y",)),
                ("add_column", (tuple(f"{path}.z".split(".")), ice.DoubleType())),
            )
        )
    ),
    schema=_NESTED,
)

_DEFAULTS: Final = {
    "b": (ice.BooleanType(), pa.bool_(), True),
    "i": (ice.IntegerType(), I32, 34),
    "l": (ice.LongType(), I64, 2**40),
    "f": (ice.FloatType(), F32, 0.5),
    "dd": (ice.DoubleType(), F64, -0.25),
    "dec": (ice.DecimalType(9, 2), pa.decimal128(9, 2), Decimal("-12.30")),
    "dt": (ice.DateType(), pa.date32(), dt.date(2024, 2, 29)),
    "ts": (ice.TimestamptzType(), pa.timestamp("us", "UTC"), dt.datetime(2024, 2, 29, 1, 2, 3, 4, UTC)),
    "ntz": (ice.TimestampType(), pa.timestamp("us"), dt.datetime(1969, 12, 31, 23, 59, 59)),
    "s": (ice.StringType(), TEXT, "dflt ä"),
    "bin": (ice.BinaryType(), pa.binary(), b"\x00\xff"),
}
_KINDS: Final = {name: kind for name, (_, kind, _) in _DEFAULTS.items()}
_VALUES: Final = {name: value for name, (_, _, value) in _DEFAULTS.items()}
_EPOCH: Final = dt.datetime(1970, 1, 1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def _java_defaults(engines: Engines, table: str) -> None:
    java, types = engines.java, engines.java.jvm.org.apache.iceberg.types.Types
    literal = java.jvm.org.apache.iceberg.expressions.Expressions.lit
    kinds = {
        "b": types.BooleanType.get(),
        "i": types.IntegerType.get(),
        "l": types.LongType.get(),
        "f": types.FloatType.get(),
        "dd": types.DoubleType.get(),
        "dec": types.DecimalType.of(9, 2),
        "dt": types.DateType.get(),
        "ts": types.TimestampType.withZone(),
        "ntz": types.TimestampType.withoutZone(),
        "s": types.StringType.get(),
        "bin": types.BinaryType.get(),
    }
    # Text is what Iceberg turns into a value of the column's type, where py4j has no class for it.
    said = {"dec": "-12.30", "dt": "2024-02-29", "ts": "2024-02-29T01:02:03.000004+00:00", "ntz": "1969-12-31T23:59:59"}
    update = java.table(table).updateSchema()
    for name, kind in kinds.items():
        value = java.jvm.java.nio.ByteBuffer.wrap(_VALUES[name]) if name == "bin" else said.get(name, _VALUES[name])
        update = update.addColumn(name, kind, literal(value).to(kind))
    update.commit()


def _our_defaults(table: Any) -> None:
    with table.update_schema() as update:
        for name, (kind, _, value) in _DEFAULTS.items():
            update.add_column(name, kind, default_value=_internal(value))


def _internal(value: Any) -> Any:
    """Return a time as Iceberg keeps it: PyIceberg takes defaults in this form."""
    if isinstance(value, dt.datetime):
        return (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    return (value - _EPOCH.date()).days if isinstance(value, dt.date) else value


DEFAULTS = evolution(
    "evolve-default",
    "columns with an initial default, eleven types",
    first=table_of(id=(I64, [1, 2])),
    then=table_of(id=(I64, [3]), **{name: (kind, [None]) for name, kind in _KINDS.items()}),
    now=table_of(id=(I64, [1, 2, 3]), **{name: (kind, [_VALUES[name]] * 2 + [None]) for name, kind in _KINDS.items()}),
    java=_java_defaults,
    ours=_our_defaults,
    where="i = 34 and s = 'dflt ä'",
)

_PARTS: Final = table_of(
    id=(I64, [1, 2, 3]),
    s=(TEXT, ["a", "a b=c%2F", None]),
    ts=(pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 2)]),
)


def _respec(table: Any) -> None:
    with table.update_spec() as update:
        update.remove_field("s_0")
        update.add_field("ts", DayTransform(), "ts_day")
        update.add_field("id", BucketTransform(2), "id_b")


SPEC = evolution(
    "evolve-partitions",
    "partition fields dropped and added: files of both specs",
    group="Partitions",
    first=_PARTS,
    then=_PARTS,
    now=pa.concat_tables([_PARTS, _PARTS]),
    java=[
        "ALTER TABLE {t} DROP PARTITION FIELD s",
        "ALTER TABLE {t} ADD PARTITION FIELD days(ts)",
        "ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)",
    ],
    ours=_respec,
    by=(("s", IdentityTransform()),),
    by_sql="s",
    where="s = 'a b=c%2F' and ts >= '2024-01-02T00:00:00+00:00'",
)


def _drop_source(table: Any) -> None:
    with table.update_spec() as update:
        update.remove_field("s_0")
    with table.update_schema() as update:
        update.delete_column("s")


DROPPED_SOURCE = evolution(
    "evolve-partition-source",
    "the source column of a dropped partition field is dropped",
    group="Partitions",
    first=_PARTS,
    then=_PARTS.drop_columns(["s"]),
    now=pa.concat_tables([_PARTS.drop_columns(["s"])] * 2),
    java=["ALTER TABLE {t} DROP PARTITION FIELD truncate(1, s)", "ALTER TABLE {t} DROP COLUMN s"],
    ours=_drop_source,
    by=(("s", TruncateTransform(1)),),
    by_sql="truncate(1, s)",
    where="id > 1",
)

FEATURES: Final = (ADD, DROP, RENAME, REORDER, PROMOTE, REQUIRED, NESTED, DEFAULTS, SPEC, DROPPED_SOURCE)
