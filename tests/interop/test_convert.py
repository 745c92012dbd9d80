"""Java makes plain tables of the three format versions; icelock converts them, and Java reads what it read before, and goes on."""

from __future__ import annotations

import json

import pytest

from icelock.errors import PolicyError
from icelock.maintenance import audit, convert, remove_plain, undo_conversion
from tests.interop.our_side import path_of
from tests.interop.session import DATABASE
from tests.interop.test_plain_tables import MODES, ROWS, create, rows

pytestmark = [pytest.mark.spark, pytest.mark.hive, pytest.mark.slow]
IDS = "SELECT id, _row_id, _last_updated_sequence_number FROM {t} ORDER BY id"


@pytest.mark.turns(3)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_java_reads_what_it_read_before(engines, new_table, version):
    """Merge-on-read: position deletes in version 2, deletion vectors in version 3; an added column; two partition specs."""
    java, spark, name = engines.java, engines.java.spark, new_table("converted")
    create(java, name, version, **(MODES if version > 1 else {}))
    java.sql(f"INSERT INTO {{t}} {ROWS}", t=name)
    java.sql("DELETE FROM {t} WHERE id IN (3, 4, 11)", t=name)
    java.sql("ALTER TABLE {t} ADD COLUMN more int", t=name)
    java.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)", t=name)
    java.sql("UPDATE {t} SET more = 1, d = d + 1 WHERE id < 3", t=name)
    before = rows(spark, "ice", name)
    assert len(before) == 9
    numbers = java.sql(IDS, t=name).collect() if version == 3 else None
    catalog = engines.ours.catalog
    plain = catalog.load_table((DATABASE, name)).metadata
    done = convert(catalog.load_table((DATABASE, name)), key_id="keyA")
    spark.sql(f"REFRESH TABLE ice.{DATABASE}.{name}")
    assert rows(spark, "ice", name) == before
    table = catalog.load_table((DATABASE, name))
    assert table.metadata.table_uuid == plain.table_uuid
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [row[0] for row in before]
    if numbers is None:
        assert sorted(row[1] for row in java.sql(IDS, t=name).collect()) == list(range(9))
    else:
        assert java.sql(IDS, t=name).collect() == numbers
    assert [row[0] for row in java.sql("SELECT snapshot_id FROM {t}.snapshots", t=name).collect()] == [done.snapshot_id]
    remove_plain(table)
    java.sql("INSERT INTO {t} SELECT id + 100, city, at, place, d, more FROM {t}", t=name)
    java.sql("DELETE FROM {t} WHERE id = 5", t=name)
    assert rows(spark, "ice", name) == sorted([*(row for row in before if row[0] != 5), *((row[0] + 100, *row[1:]) for row in before)])
    again = catalog.load_table((DATABASE, name))
    assert sorted(again.scan().to_arrow()["id"].to_pylist()) == [row[0] for row in rows(spark, "ice", name)]
    (report,) = audit(catalog, f"{DATABASE}.{name}", depth=["bytes", "foreign"]).tables
    assert report.objects["plain, reached"].files == 0
    assert not {"plain-object", "plain-object-of-conversion"} & set(report.counts)


def at(java, name, snapshot):
    """The rows of a snapshot as Java reads them, as text: with the columns that it had."""
    found = java.sql(f"SELECT to_json(struct(*)) FROM {{t}} VERSION AS OF {snapshot}", t=name).collect()
    return sorted(row[0] for row in found)


FORMS = [(1, "keep", "avro"), (2, "keep", "parquet"), (3, "keep", "parquet"), (2, "refs", "orc")]


@pytest.mark.parametrize(("version", "history", "format_"), FORMS)
def test_java_reads_every_snapshot_as_before(engines, new_table, version, history, format_):
    """Deletes by positions or vectors, two specs, columns that came and went, a branch and a tag; then Java goes on."""
    java, spark, name = engines.java, engines.java.spark, new_table("history")
    create(java, name, version, **{"write.format.default": format_}, **(MODES if version > 1 else {}))
    java.sql(f"INSERT INTO {{t}} {ROWS}", t=name)
    java.sql("ALTER TABLE {t} CREATE TAG v1", t=name)
    java.sql("DELETE FROM {t} WHERE id IN (3, 4, 11)", t=name)
    java.sql("ALTER TABLE {t} ADD COLUMN more int", t=name)
    java.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)", t=name)
    java.sql("UPDATE {t} SET more = 1, d = d + 1 WHERE id < 3", t=name)
    java.sql("ALTER TABLE {t} CREATE BRANCH side", t=name)
    java.sql("ALTER TABLE {t} ALTER COLUMN more TYPE bigint", t=name)
    java.sql("ALTER TABLE {t} DROP COLUMN d", t=name)
    java.sql("INSERT INTO {t} SELECT id + 50, city, at, place, 5000000000 FROM {t} WHERE id < 2", t=name)
    listed = "SELECT snapshot_id, parent_id, committed_at, operation, summary FROM {t}.snapshots ORDER BY committed_at, snapshot_id"
    ids = "SELECT id, _row_id, _last_updated_sequence_number FROM {t} ORDER BY id"
    snapshots = java.sql(listed, t=name).collect()
    assert len(snapshots) == 4
    refs = {row.name: row.snapshot_id for row in java.sql("SELECT name, snapshot_id FROM {t}.refs", t=name).collect()}
    kept = [row for row in snapshots if history == "keep" or row.snapshot_id in refs.values()]
    before = {row.snapshot_id: at(java, name, row.snapshot_id) for row in kept}
    numbers = java.sql(ids, t=name).collect() if version == 3 else None
    catalog = engines.ours.catalog
    done = convert(catalog.load_table((DATABASE, name)), key_id="keyA", history=history)
    assert done.snapshots == len(kept)
    spark.sql(f"REFRESH TABLE ice.{DATABASE}.{name}")
    assert {one: at(java, name, one) for one in before} == before
    assert at(java, name, "'v1'") == before[refs["v1"]]
    assert len(at(java, name, "'side'")) == len(before[refs["side"]])
    now = {row.snapshot_id: row for row in java.sql(listed, t=name).collect()}
    assert [now[row.snapshot_id] for row in kept] == kept
    assert len(now) == len(kept) + 2
    if numbers is not None:
        assert java.sql(ids, t=name).collect() == numbers
    table = catalog.load_table((DATABASE, name))
    remove_plain(table)
    java.sql("DELETE FROM {t} WHERE id = 5", t=name)
    java.sql("INSERT INTO {t} SELECT id + 100, city, at, place, more FROM {t}", t=name)
    spark.sql(f"CALL ice.system.rewrite_data_files(table => '{DATABASE}.{name}', options => map('rewrite-all', 'true'))")
    found = sorted(row[0] for row in java.sql("SELECT id FROM {t}", t=name).collect())
    assert found == sorted(catalog.load_table((DATABASE, name)).scan().to_arrow()["id"].to_pylist())
    assert found == [0, 1, 2, 6, 7, 8, 9, 10, 50, 51, 100, 101, 102, 106, 107, 108, 109, 110, 150, 151]
    assert {one: at(java, name, one) for one in before} == before
    (report,) = audit(catalog, f"{DATABASE}.{name}", depth="bytes").tables
    assert (report.counts, report.unseen) == ({}, ())


EVERY = """
    id bigint NOT NULL, yes boolean, i int, f float, d double, m decimal(9, 2), w decimal(38, 10), day date, at timestamp,
    wall timestamp_ntz, city string, raw binary, list array<struct<x: int, at: timestamp>>, map map<string, array<bigint>>,
    place struct<name: string, no: struct<y: int>>
"""
VALUES = """
    SELECT id, id % 2 = 0, int(id), float(id) / 3, -double(id) / 7, CAST(id * 1.25 AS decimal(9, 2)),
        CAST('-12345678901234567890.0123456789' AS decimal(38, 10)) + id, date_add(DATE '1965-01-01', int(id) * 1000),
        timestamp_micros(-5000000000000001 + id * 777777777777777),
        timestamp_ntz'1901-03-04 05:06:07.000008' + make_dt_interval(int(id) * 9999, 1),
        concat('town-', id % 3, ' \u00e9'), CAST(concat('b', id) AS binary),
        array(named_struct('x', int(id), 'at', timestamp_micros(id)), null), map(concat('k', id), array(id, null), 'n', null),
        if(id % 4 = 1, null, named_struct('name', concat('a-', id), 'no', if(id % 4 = 2, null, named_struct('y', int(id)))))
    FROM range(0, 12, 1, 2)
    UNION ALL SELECT 99, null, null, null, null, null, null, null, null, null, null, null, null, null, null
"""


def rows_of(java, name):
    """The rows, as text: Spark's own, with microseconds and every nested value."""
    return java.sql("SELECT id, to_json(struct(*)), hex(raw), unix_micros(at), CAST(wall AS string) FROM {t} ORDER BY id", t=name).collect()


@pytest.mark.parametrize("version", [1, 2])
def test_orc_becomes_parquet(engines, new_table, version):
    """Columns by the ids that Java puts into ORC types, deletes in ORC files, two specs, and what was added later."""
    java, name = engines.java, new_table("orc")
    properties = {"format-version": version, "write.format.default": "orc", **(MODES if version > 1 else {})}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    java.sql(f"CREATE TABLE {{t}} ({EVERY}) USING iceberg PARTITIONED BY (city) TBLPROPERTIES ({listed})", t=name)
    java.sql(f"INSERT INTO {{t}} {VALUES}", t=name)
    java.sql("DELETE FROM {t} WHERE id IN (3, 4, 11)", t=name)
    java.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)", t=name)
    java.sql("ALTER TABLE {t} RENAME COLUMN place.no TO number", t=name)
    java.sql("ALTER TABLE {t} DROP COLUMN f", t=name)
    java.sql("ALTER TABLE {t} ADD COLUMN f int", t=name)
    java.sql("UPDATE {t} SET f = 1, d = d + 1 WHERE id < 3", t=name)
    files = java.sql("SELECT content, file_format, count(*) FROM {t}.all_files GROUP BY 1, 2", t=name).collect()
    assert {row[1] for row in files} == {"ORC"}
    assert {row[0] for row in files} == ({0} if version == 1 else {0, 1})
    before = rows_of(java, name)
    assert [row[0] for row in before] == [0, 1, 2, 5, 6, 7, 8, 9, 10, 99]
    catalog = engines.ours.catalog
    convert(catalog.load_table((DATABASE, name)), key_id="keyA")
    table = catalog.load_table((DATABASE, name))
    assert table.properties["write.format.default"] == "parquet"
    java.spark.sql(f"REFRESH TABLE ice.{DATABASE}.{name}")
    assert rows_of(java, name) == before
    assert {task.file.file_format.value for task in table.scan().plan_files()} == {"PARQUET"}
    (report,) = audit(catalog, f"{DATABASE}.{name}", depth=["bytes", "foreign"]).tables
    assert set(report.counts) == {"plain-object-of-conversion"}
    undo_conversion(table)
    java.spark.sql(f"REFRESH TABLE ice.{DATABASE}.{name}")
    assert rows_of(java, name) == before


def added_plain_files(java, name):
    """An encrypted table that takes plain files in, in a plain manifest; one row of each kind is deleted."""
    create(java, name, 3, **MODES, **{"encryption.key-id": "keyA"})
    java.sql(f"INSERT INTO {{t}} {ROWS}", t=name)
    folder = f"{java.warehouse}/{name}_plain"
    given = java.spark.sql(f"SELECT id + 100 AS id, at, place, d, city FROM ice.{java.database}.{name}")
    given.coalesce(2).write.partitionBy("city").parquet(folder)
    java.spark.sql(f"CALL ice.system.add_files(table => '{java.database}.{name}', source_table => '`parquet`.`{folder}`')")


def registered_with_key_id(java, name):
    """A plain table of version 2 with deletes, upgraded and registered with a key id: Java's Hive catalog sets none later."""
    create(java, f"{name}_old", 2, **MODES)
    java.sql(f"INSERT INTO {{t}} {ROWS}", t=f"{name}_old")
    java.sql("DELETE FROM {t} WHERE id IN (3, 4, 11)", t=f"{name}_old")
    java.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')", t=f"{name}_old")
    java.sql("INSERT INTO {t} SELECT id + 50, city, at, place, d FROM {t} WHERE id < 2", t=f"{name}_old")
    location = path_of(java.parameters(f"{name}_old")["metadata_location"])
    said = json.loads(location.read_text())
    said["properties"]["encryption.key-id"] = "keyA"
    keyed = location.with_name("00090-3e0d1c1c-7d38-4a4c-9d9e-0c6d5f6f7a10.metadata.json")
    keyed.write_text(json.dumps(said))
    java.spark.sql(f"CALL ice.system.register_table(table => '{java.database}.{name}', metadata_file => '{keyed}')")
    java.sql("INSERT INTO {t} SELECT id + 100, city, at, place, d FROM {t} WHERE id < 8", t=name)


@pytest.mark.parametrize("make", [added_plain_files, registered_with_key_id])
def test_a_table_that_java_left_mixed_becomes_encrypted(engines, new_table, make):
    java, spark, name = engines.java, engines.java.spark, new_table("mixed")
    make(java, name)
    java.sql("DELETE FROM {t} WHERE id IN (5, 105)", t=name)
    before = rows(spark, "ice", name)
    numbers = dict(java.sql("SELECT id, _row_id FROM {t} WHERE _row_id IS NOT NULL", t=name).collect())
    with pytest.raises(PolicyError, match="icelock convert"):
        engines.ours.read(name)
    ours, mixed = engines.ours.catalog, engines.ours.table(name, mixed=True)
    assert sorted(engines.ours.read(name, mixed=True)["id"].to_pylist()) == [row[0] for row in before]
    assert sorted(row.id for row in spark.read.format("icelock").load(f"mixed.{DATABASE}.{name}").collect()) == [row[0] for row in before]
    (report,) = audit(ours, f"{DATABASE}.{name}").tables
    assert report.counts["mixed-table"] == 1
    with pytest.raises(PolicyError, match="allow-unkeyed"):
        convert(ours.load_table((DATABASE, name)), key_id="keyA")
    done = convert(mixed, key_id="keyA")
    spark.sql(f"REFRESH TABLE ice.{DATABASE}.{name}")
    assert rows(spark, "ice", name) == before
    found = dict(java.sql("SELECT id, _row_id FROM {t}", t=name).collect())
    assert {number: found[number] for number in numbers} == numbers
    (report,) = audit(ours, f"{DATABASE}.{name}", depth="bytes").tables
    assert (report.counts, report.unseen) == ({}, ())
    table = ours.load_table((DATABASE, name))
    assert table.metadata.current_snapshot_id == done.snapshot_id
    assert sorted(engines.ours.read(name)["id"].to_pylist()) == [row[0] for row in before]
    java.sql("DELETE FROM {t} WHERE id = 7", t=name)
    java.sql("INSERT INTO {t} SELECT id + 1000, city, at, place, d FROM {t} WHERE id < 3", t=name)
    wanted = sorted([*(row[0] for row in before if row[0] != 7), 1000, 1001, 1002])
    assert [row[0] for row in rows(spark, "ice", name)] == wanted
    assert sorted(engines.ours.read(name)["id"].to_pylist()) == wanted
    (report,) = audit(ours, f"{DATABASE}.{name}", depth="bytes").tables
    assert (report.counts, report.unseen) == ({}, ())
