"""Files that are named by whoever can write metadata.json are never deleted, whatever deletes; those of the table are."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from icelock.maintenance import remove_leftovers
from tests.helpers.tables import local
from tests.lakes.sqlite import KEYED, TestLake, people

DELETES = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}


def forge(lake: TestLake, change: Callable[[dict[str, Any]], None], name: str = "t") -> Any:
    """Register a table whose metadata file, beside the real one, was changed by someone who can write to storage."""
    catalog = lake.catalog()
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table("db.real", schema=people().schema, properties=KEYED)
    table.append(people())
    path = local(table.metadata_location)
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    forged = path.with_name("00009-forged.metadata.json")
    forged.write_text(json.dumps(document), encoding="utf-8")
    catalog.register_table(f"db.{name}", str(forged))
    return catalog


@pytest.fixture
def victims(lake: TestLake) -> dict[str, str]:
    """Files that are not the table's, by the way that leads to them from its folder ``warehouse/db/real``."""
    root = lake.warehouse / "db" / "real"
    outside = lake.folder / "outside"
    outside.mkdir()
    neighbour = lake.warehouse / "db" / "real2" / "metadata"
    neighbour.mkdir(parents=True)
    places = {
        "outside": outside / "1.metadata.json",
        "neighbour": neighbour / "2.metadata.json",
        "linked": outside / "3.metadata.json",
    }
    for path in places.values():
        path.write_text("not of this table", encoding="utf-8")
    (root / "metadata").mkdir(parents=True)
    (root / "metadata" / "link").symlink_to(outside)
    return {
        str(places["outside"]): str(places["outside"]),
        f"file://{places['outside']}": str(places["outside"]),
        f"{root}/metadata/../../../../outside/1.metadata.json": str(places["outside"]),
        str(places["neighbour"]): str(places["neighbour"]),
        f"{root}/metadata/link/3.metadata.json": str(places["linked"]),
    }


def untouched(victims: dict[str, str]) -> bool:
    return all(os.path.exists(path) for path in victims.values())  # noqa: PTH110


def test_a_commit_deletes_older_metadata_files_of_the_table_alone(lake: TestLake, victims: dict[str, str], caplog: Any) -> None:
    def change(document: dict[str, Any]) -> None:
        document["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": place} for place in victims] + document["metadata-log"]
        document["properties"].update(DELETES)

    catalog = forge(lake, change)
    own = [
        local(entry.metadata_file) for entry in catalog.load_table("db.t").metadata.metadata_log if "-forged" not in entry.metadata_file
    ][-1]
    assert own.exists()
    with caplog.at_level(logging.WARNING):
        for start in (10, 20):
            catalog.load_table("db.t").append(people(start))
    assert untouched(victims)
    assert not own.exists(), "Java's rule: files that leave the log are deleted"
    assert "do not lie at the table" in caplog.text


def test_a_file_that_is_no_metadata_file_is_not_deleted_as_one(lake: TestLake) -> None:
    def change(document: dict[str, Any]) -> None:
        lists = [snapshot["manifest-list"] for snapshot in document["snapshots"]]
        document["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": place} for place in lists]
        document["properties"].update(DELETES)

    catalog = forge(lake, change)
    for start in (10, 20):
        catalog.load_table("db.t").append(people(start))
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 30


def test_a_file_of_another_clients_commit_names_files_of_others(lake: TestLake, victims: dict[str, str]) -> None:
    """The database names a file that the facts do not know, as after a commit of Java's."""

    def change(document: dict[str, Any]) -> None:
        document["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": place} for place in victims]
        document["properties"].update(DELETES)

    catalog = forge(lake, change)
    forged = catalog.load_table("db.t").metadata_location
    with sqlite3.connect(lake.folder / "catalog.db") as database:
        database.execute("update iceberg_tables set metadata_location = ? where table_name = 'real'", (forged,))
    for start in (10, 20):
        lake.catalog().load_table("db.real").append(people(start))
    assert untouched(victims)


def test_purge_deletes_the_tables_files_alone(lake: TestLake, victims: dict[str, str]) -> None:
    def change(document: dict[str, Any]) -> None:
        document["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": place} for place in victims]
        document["statistics"] = [
            {"snapshot-id": 1, "statistics-path": place, "file-size-in-bytes": 1, "file-footer-size-in-bytes": 1, "blob-metadata": []}
            for place in victims
        ]
        document["partition-statistics"] = [{"snapshot-id": 1, "statistics-path": place, "file-size-in-bytes": 1} for place in victims]
        document["location"] = str(lake.folder)

    catalog = forge(lake, change)
    table = catalog.load_table("db.t")
    own = {local(file) for file in (table.metadata_location, table.metadata.snapshots[0].manifest_list)}
    own |= {local(task.file.file_path) for task in table.scan().plan_files()}
    catalog.purge_table("db.t")
    assert untouched(victims)
    assert not any(path.exists() for path in own)


def test_expiry_deletes_statistics_of_the_table_alone(lake: TestLake, victims: dict[str, str]) -> None:
    def change(document: dict[str, Any]) -> None:
        snapshot_id = document["snapshots"][0]["snapshot-id"]
        document["partition-statistics"] = [
            {"snapshot-id": snapshot_id, "statistics-path": place, "file-size-in-bytes": 1} for place in victims
        ]
        document["location"] = str(lake.folder)

    catalog = forge(lake, change)
    first = local(catalog.load_table("db.t").metadata.snapshots[0].manifest_list)
    catalog.load_table("db.t").overwrite(people(10))
    beside = local(catalog.load_table("db.t").metadata_location).parent
    assert beside == lake.warehouse / "db" / "real" / "metadata", "a changed location does not move the metadata"
    expired = catalog.load_table("db.t").maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(hours=1)).commit()
    assert expired.snapshots
    assert not first.exists()
    assert untouched(victims)


def test_leftovers_are_the_tables_own_by_where_its_metadata_file_lies(lake: TestLake) -> None:
    """With the warehouse, or more, as its location, a table would clean up among its neighbours."""

    def change(document: dict[str, Any]) -> None:
        document["location"] = str(lake.folder)

    (lake.folder / "mine").mkdir()
    mine = lake.folder / "mine" / "rows.parquet"
    mine.write_bytes(b"mine")
    catalog = forge(lake, change)
    own = lake.warehouse / "db" / "real" / "data" / "left.parquet"
    own.write_bytes(b"left over")
    removed = remove_leftovers(catalog.load_table("db.t"), older_than=timedelta(seconds=-60))
    assert mine.exists()
    assert str(mine) in {file.path for file in removed.failed}
    assert not own.exists()


def test_files_named_by_encrypted_manifests_go_wherever_they_are(lake: TestLake) -> None:
    """Java purges what ``write.data.path`` put elsewhere."""
    catalog = lake.catalog()
    elsewhere = lake.folder / "elsewhere"
    table = catalog.create_table("db.t", schema=people().schema, properties={**KEYED, "write.data.path": str(elsewhere)})
    table.append(people())
    assert list(elsewhere.rglob("*.parquet"))
    catalog.purge_table("db.t")
    assert not list(elsewhere.rglob("*.parquet"))
