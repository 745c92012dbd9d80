"""A server that names a folder of the client's disk as the table's: nothing in it is deleted; it cannot put the table's file there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from icelock.errors import IntegrityError
from icelock.maintenance import remove_leftovers
from tests.helpers.tables import ids
from tests.lakes.sqlite import KEYED, people
from tests.lakes.stub import QUICK, StubLake
from tests.servers.rest_stub import RestStub

STATISTICS = {"file-size-in-bytes": 1, "file-footer-size-in-bytes": 1, "blob-metadata": []}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / "id_rsa").write_text("the user's own")
    (folder / "report.parquet").write_text("the user's own")
    return folder


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def claim(stub: RestStub, home: Path, *, snapshot: int) -> None:
    """Let the server say that the table lies in the user's folder, and that a file there is one of its statistics."""
    kept = stub.tables["db", "t"]
    stolen = {"snapshot-id": snapshot, "statistics-path": f"file://{home}/metadata/id_rsa", **STATISTICS}
    kept["metadata"]["statistics"] = [stolen]
    kept["metadata-location"] = f"file://{home}/metadata/00009-x.metadata.json"


@pytest.mark.parametrize("there", ["nothing", "another table's file", "something else"])
def test_a_purge_deletes_nothing_where_the_server_says_the_table_is(there: str, home: Path, lake: StubLake, stub: RestStub) -> None:
    lake.table(rows=1)
    other = lake.catalog().create_table("db.other", people().schema, properties={**KEYED, **QUICK})
    claim(stub, home, snapshot=lake.kept["current-snapshot-id"])
    if there != "nothing":
        text = Path(other.metadata_location.removeprefix("file://")).read_text() if there.startswith("another") else "secret"
        (home / "metadata" / "00009-x.metadata.json").write_text(text)
    users, tables = files(home), set(lake.files())
    with pytest.raises(IntegrityError, match="nothing was deleted"):
        lake.catalog().purge_table("db.t")
    assert (files(home), set(lake.files())) == (users, tables)
    assert ("db", "t") in stub.tables


def test_an_expiry_leaves_statistics_where_the_server_says_the_table_is(home: Path, lake: StubLake, stub: RestStub, caplog: Any) -> None:
    lake.table(rows=1).append(people(1, 1))
    claim(stub, home, snapshot=lake.kept["snapshots"][0]["snapshot-id"])
    users, apply, keep = files(home), stub.apply, stub.keep

    def without_statistics(metadata: dict[str, Any], update: dict[str, Any]) -> None:
        if update["action"] == "remove-snapshots":
            metadata["snapshots"] = [one for one in metadata["snapshots"] if one["snapshot-id"] not in update["snapshot-ids"]]
            metadata["statistics"] = []
        else:
            apply(metadata, update)

    stub.apply = without_statistics
    stub.keep = lambda space, name, metadata: keep(space, name, metadata, f"file://{home}/metadata/00010-x.metadata.json")
    table = lake.catalog().load_table("db.t")
    done = table.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
    assert len(done.snapshots) == 1
    assert files(home) == users
    assert "id_rsa" in caplog.text
    assert ids(table) == [0, 1]


def test_leftovers_are_left_where_the_server_says_the_table_is(home: Path, lake: StubLake, stub: RestStub) -> None:
    lake.table(rows=1)
    other = lake.catalog().create_table("db.other", people().schema, properties={**KEYED, **QUICK})
    claim(stub, home, snapshot=lake.kept["current-snapshot-id"])
    lake.kept["location"] = f"file://{home}"
    (home / "metadata" / "00009-x.metadata.json").write_text(Path(other.metadata_location.removeprefix("file://")).read_text())
    users = files(home)
    with pytest.raises(IntegrityError, match="is the metadata file of table"):
        remove_leftovers(lake.catalog().load_table("db.t"), older_than=timedelta(0))
    assert files(home) == users


def test_a_table_whose_metadata_file_is_its_own_is_purged_with_its_statistics(lake: StubLake) -> None:
    lake.table(rows=1)
    place = Path(lake.kept["location"].removeprefix("file://")) / "metadata" / "of-java.stats"
    place.write_text("statistics")
    statistics = {"snapshot-id": lake.kept["current-snapshot-id"], "statistics-path": f"file://{place}", **STATISTICS}
    lake.kept["statistics"] = [statistics]
    lake.catalog().purge_table("db.t")
    assert not place.exists()
