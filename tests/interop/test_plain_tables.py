"""Plain tables of the three format versions: Java writes and icelock's Spark SQL reads; icelock inserts and deletes, and Java reads."""

from __future__ import annotations

import pytest

from tests.interop.session import DATABASE

pytestmark = [pytest.mark.spark, pytest.mark.hive, pytest.mark.slow]
MODES = {f"write.{name}.mode": "merge-on-read" for name in ("delete", "update", "merge")}
COLUMNS = "id bigint, city string, at timestamp, place struct<name: string, no: int>, d decimal(9, 2)"
ROWS = """
    SELECT id, concat('town-', id % 3), timestamp_seconds(1769860800 + id), named_struct('name', concat('a-', id), 'no', int(id)),
        CAST(id AS decimal(9, 2)) FROM range(0, 12, 1, 2)
"""


@pytest.fixture
def open_lake(engines):
    """The session, whose catalog ``open`` lets plain tables take rows."""
    return engines.java.spark


def create(java, name, version, **properties):
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in {"format-version": version, **properties}.items())
    java.sql(f"CREATE TABLE {{t}} ({COLUMNS}) USING iceberg PARTITIONED BY (city) TBLPROPERTIES ({listed})", t=name)


def rows(spark, catalog, name):
    return sorted(map(tuple, spark.table(f"{catalog}.{DATABASE}.{name}").collect()))


@pytest.mark.turns(3)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_java_writes_and_sql_reads(engines, new_table, open_lake, version):
    java, name = engines.java, new_table("plain")
    create(java, name, version, **(MODES if version > 1 else {}))
    java.sql(f"INSERT INTO {{t}} {ROWS}", t=name)
    java.sql("DELETE FROM {t} WHERE id IN (3, 4, 11)", t=name)
    java.sql("ALTER TABLE {t} ADD COLUMN more int", t=name)
    java.sql("UPDATE {t} SET more = 1, d = d + 1 WHERE id < 3", t=name)
    theirs = rows(open_lake, "ice", name)
    assert len(theirs) == 9
    assert rows(open_lake, "open", name) == theirs
    assert open_lake.sql(f"SELECT count(*) FROM open.{DATABASE}.{name} WHERE city = 'town-0' AND id < 7").first()[0] == 2
    first = java.sql("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at", t=name).first()[0]
    assert open_lake.sql(f"SELECT count(*) FROM open.{DATABASE}.{name} VERSION AS OF {first}").first()[0] == 12
    here = engines.ours.table(name)
    assert (here.encrypted, here.scan(snapshot_id=first).count()) == (False, 12)
    columns = ("id", "city", "d", "more")
    assert sorted(zip(*(here.scan(selected_fields=columns).to_arrow()[column].to_pylist() for column in columns), strict=True)) == [
        (row["id"], row["city"], row["d"], row["more"]) for row in sorted(java.sql("SELECT * FROM {t}", t=name).collect())
    ]
    gone = here.changes(start_snapshot_id=first, end_snapshot_id=here.snapshots()[1].snapshot_id).to_arrow()
    assert sorted(zip(gone["id"].to_pylist(), gone["_change_type"].to_pylist(), strict=True)) == [(n, "DELETE") for n in (3, 4, 11)]


@pytest.mark.parametrize("version", [1, 2])
def test_sql_writes_and_java_reads(engines, new_table, open_lake, version):
    java, name = engines.java, new_table("plain")
    create(java, name, version)
    open_lake.sql(f"INSERT INTO open.{DATABASE}.{name} {ROWS}")
    theirs = rows(open_lake, "ice", name)
    assert theirs == rows(open_lake, "open", name)
    assert [row[0] for row in theirs] == list(range(12))
    open_lake.sql(f"DELETE FROM open.{DATABASE}.{name} WHERE id >= 5 OR place.name = 'a-0'")
    assert [row[0] for row in rows(open_lake, "ice", name)] == [1, 2, 3, 4]
    java.sql("INSERT INTO {t} SELECT id + 100, city, at, place, d FROM {t}", t=name)
    assert [row[0] for row in rows(open_lake, "open", name)] == [1, 2, 3, 4, 101, 102, 103, 104]
