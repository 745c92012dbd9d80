"""One table, two engines in turn: after every step both read the rows that a plain Python list says.

After every commit of icelock Java loads the table and finds the hash right (``Ours.landed``), and at the end of each history every file
of the table is encrypted.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from tests.helpers.turns import in_turn
from tests.interop import model
from tests.interop.compare import canonical
from tests.interop.features_rows import MERGE_ON_READ, numbered, numbers
from tests.interop.independent import verify_chain
from tests.interop.model import History, arrow
from tests.interop.our_side import ArrowWriter, plain_files

pytestmark = [pytest.mark.spark, pytest.mark.hive, pytest.mark.slow]

SEED = 20261128
HISTORIES = 10


def check(history: History, *, spark: bool = False) -> None:
    ours, said = history.engines.ours, "\n".join(history.log)
    assert canonical(history.engines.java.read(history.table)) == history.expected(), f"Java, after:\n{said}"
    assert canonical(ours.read(history.table)) == history.expected(), f"icelock, after:\n{said}"
    if spark:
        assert canonical(ours.read_by_spark(history.table)) == history.expected(), f"icelock in Spark, after:\n{said}"


def finish(history: History) -> None:
    check(history, spark=True)
    java_insert_keeps_encrypting(history)


def java_insert_keeps_encrypting(history: History) -> None:
    model.java_insert(history)
    check(history)
    assert plain_files(history.engines.ours.table(history.table).location()) == []
    verify_chain(history.engines.ours, history.table)


def test_java_creates_we_append_java_updates_we_delete_java_compacts_we_read(engines, new_table):
    """The history of issue 4, and back again."""
    history = History(engines, new_table("told"), random.Random(SEED))
    engines.java.create(history.table, arrow([]).schema, by="bucket(2, id)", properties=MERGE_ON_READ)
    steps = (
        *(model.java_insert, model.our_append, model.java_update, model.our_delete, model.java_compact, model.java_rewrite_manifests),
        *(model.our_append, model.java_delete, model.our_overwrite, model.java_update, model.our_spark_append, model.our_delete),
    )
    for step in steps:
        step(history)
        check(history, spark=True)
    finish(history)


def test_we_create_java_appends_we_overwrite_java_deletes_by_position_and_equality(engines, new_table):
    """Our table with every kind of delete file in it, and our deletes on top."""
    history = History(engines, new_table("told"), random.Random(SEED + 1))
    engines.ours.create(history.table, arrow([]).schema, properties=MERGE_ON_READ)
    for step in (model.our_append, model.java_insert, model.our_append, model.java_delete):
        step(history)
    engines.java.jvm.RowChanges.positionDeletesForVectors(engines.java.table(history.table))
    history.log.append("Java turns deletion vectors into position deletes")
    check(history, spark=True)
    for step in (model.our_delete, model.java_equality_delete, model.our_delete, model.our_overwrite):
        step(history)
        check(history, spark=True)
    finish(history)


def table_like(draw: random.Random) -> dict[str, Any]:
    """Return how a history's table is: partitioning, delete mode, format, key length, who makes it."""
    properties = dict(MERGE_ON_READ) if draw.random() < 0.7 else {}
    if draw.random() < 0.3:
        properties["write.format.default"] = "avro"
    if draw.random() < 0.3:
        properties["encryption.data-key-length"] = draw.choice(("24", "32"))
    return {"by": draw.choice(("", "bucket(2, id)", "s")), "properties": properties}


@pytest.mark.parametrize("number", in_turn("random histories", HISTORIES, 7))
def test_random_history(engines, new_table, number):
    draw = random.Random(SEED * 1000 + number)
    history = History(engines, new_table("random"), draw)
    how = table_like(draw)
    history.log.append(f"seed {SEED * 1000 + number}: Java creates {how}")
    engines.java.create(history.table, arrow([]).schema, **how)
    operations, weights = zip(*model.OPERATIONS.items(), strict=True)
    draw.choice((model.java_insert, model.our_append))(history)
    for step in draw.choices(operations, weights, k=draw.randrange(4, 7)):
        step(history)
        check(history)
    finish(history)


def test_both_engines_commit_at_once(engines, new_table):
    """Five appends of each engine side by side: every one lands, and no snapshot loses its key (cases C-05, C-06)."""
    table = new_table("race")
    engines.java.create(table, numbered(0, 0).schema, properties={"commit.retry.num-retries": "20", "commit.retry.min-wait-ms": "20"})
    failures: list[BaseException] = []

    def appends(write: Any, start: int) -> None:
        try:
            for i in range(5):
                write(table, numbered(start + i, 1))
        except BaseException as e:  # noqa: BLE001 - the other thread must not hide it
            failures.append(e)

    threads = [
        threading.Thread(target=appends, args=(write, start)) for write, start in ((engines.java.insert, 0), (_append(engines), 100))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    wanted = numbers(*range(5), *range(100, 105))
    assert canonical(engines.java.read(table)) == wanted
    loaded = engines.ours.table(table)
    assert canonical(loaded.scan().to_arrow()) == wanted
    assert len(loaded.snapshots()) == 10
    for snapshot in loaded.snapshots():
        assert loaded.scan(snapshot_id=snapshot.snapshot_id).count() == snapshot.sequence_number


def _append(engines: Any) -> Any:
    """Return icelock's append, without the look from Java's side after each commit: Java may be one commit further by then."""
    catalog = type(engines.ours.catalog)("ours", **engines.ours.catalog.properties)
    return lambda table, rows: catalog.load_table(f"{engines.java.database}.{table}").append(rows)


def test_a_table_that_one_engine_renames_is_the_other_s_too(engines, new_table):
    first, second, third = (new_table("named") for _ in range(3))
    engines.java.create(first, numbered(0, 0).schema)
    engines.java.insert(first, numbered(0, 2))
    engines.java.sql("ALTER TABLE {t} RENAME TO {n}".replace("{n}", f"{engines.java.database}.{second}"), t=first)
    ArrowWriter(engines.ours)(second, numbered(2, 2))
    engines.ours.catalog.rename_table(f"{engines.java.database}.{second}", f"{engines.java.database}.{third}")
    engines.java.insert(third, numbered(4, 1))
    assert canonical(engines.java.read(third)) == canonical(engines.ours.read(third)) == numbers(0, 1, 2, 3, 4)


def test_properties_of_either_engine_are_kept_by_the_other(engines, new_table):
    table = new_table("properties")
    engines.java.create(table, numbered(0, 0).schema, properties={"by.java": "1"})
    engines.java.alter_parameters(table, put={"by.a.third": "3"})
    engines.ours.table(table).transaction().set_properties({"by.us": "2"}).commit_transaction()
    engines.java.sql("ALTER TABLE {t} SET TBLPROPERTIES ('by.java' = '4')", t=table)
    properties = engines.ours.table(table).properties
    assert (properties["by.java"], properties["by.us"]) == ("4", "2")
    assert engines.java.parameters(table)["by.a.third"] == "3"


def test_what_java_s_hive_catalog_has_no_type_for(engines, new_table):
    """The page says that these types are not in the matrix because Java refuses them."""
    types = engines.java.jvm.org.apache.iceberg.types.Types
    for kind in (
        types.TimestampNanoType.withoutZone(),
        types.TimestampNanoType.withZone(),
        types.VariantType.get(),
        types.UnknownType.get(),
    ):
        with pytest.raises(Exception, match=r"not supported|Invalid column type|Invalid Hive object"):
            engines.java.create_by_api(new_table("refused"), engines.java.schema(id=types.LongType.get(), x=kind))
