"""Java makes plain tables of the three format versions; icelock converts them, and Java reads what it read before, and goes on."""

from __future__ import annotations

import pytest

from icelock.maintenance import audit, convert, remove_plain, undo_conversion
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
