"""Java makes plain tables of the three format versions; icelock converts them, and Java reads what it read before, and goes on."""

from __future__ import annotations

import pytest

from icelock.maintenance import audit, convert, remove_plain
from tests.interop.session import DATABASE
from tests.interop.test_plain_tables import MODES, ROWS, create, rows

pytestmark = [pytest.mark.spark, pytest.mark.hive, pytest.mark.slow]
IDS = "SELECT id, _row_id, _last_updated_sequence_number FROM {t} ORDER BY id"


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
