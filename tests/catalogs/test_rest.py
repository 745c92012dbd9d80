"""What is REST's own, on Iceberg's server: views, namespaces in namespaces, and plain tables that are staged by the server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyiceberg.view.metadata import SQLViewRepresentation, ViewVersion

from icelock.errors import CommitError
from tests.helpers.tables import ids, local
from tests.lakes.catalogs import RestLake
from tests.lakes.sqlite import KEYED, people

pytestmark = pytest.mark.parametrize("lake", ["rest"], indirect=True)


def test_views_are_left_alone(lake: RestLake) -> None:
    catalog = lake.catalog()
    lake.make(rows=1)
    version = ViewVersion(
        version_id=1,
        schema_id=0,
        timestamp_ms=1,
        summary={},
        representations=[SQLViewRepresentation(type="sql", sql="SELECT id FROM t", dialect="spark")],
        default_namespace=[lake.space],
    )
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    catalog.create_view(lake.name("v"), schema, version)
    assert catalog.list_views(lake.space) == [(lake.space, "v")]
    assert catalog.load_view(lake.name("v")).schema() == schema
    assert catalog.list_tables(lake.space) == [(lake.space, "t")]
    catalog.drop_view(lake.name("v"))
    assert catalog.list_views(lake.space) == []


def test_namespaces_in_namespaces(lake: RestLake) -> None:
    catalog = lake.catalog()
    catalog.create_namespace((lake.space, "inner"))
    table = catalog.create_table((lake.space, "inner", "t"), people().schema, properties=KEYED)
    table.append(people(0, 2))
    assert ids(lake.catalog().load_table(f"{lake.space}.inner.t")) == [0, 1]
    assert catalog.list_tables((lake.space, "inner")) == [(lake.space, "inner", "t")]


def test_a_plain_table_is_staged_by_the_server(lake: RestLake) -> None:
    transaction = lake.catalog().create_table_transaction(lake.name("plain"), people().schema, properties={"icelock.plain": "true"})
    transaction.append(people(0, 2))
    assert not lake.catalog().table_exists(lake.name("plain"))
    transaction.commit_transaction()
    table = lake.load("plain")
    assert ids(table) == [0, 1]
    assert table.location().endswith(f"{lake.space}/plain")


def before_the_server_gets_it(catalog: Any, act: Callable[[], object]) -> None:
    """Let others do something after a commit was checked, in the moment before it is sent."""
    session = catalog._session
    post = session.post

    def posting(*given: Any, **more: Any) -> Any:
        session.post = post
        act()
        return post(*given, **more)

    session.post = posting


def test_an_expiry_deletes_no_file_of_a_tag_that_the_server_dropped(lake: RestLake) -> None:
    """Iceberg's server takes a removal of snapshots though a tag has just been made of one, and drops the tag."""
    catalog = lake.catalog()
    table = lake.make(rows=3)
    table.append(people(3, 3))
    table.delete("id < 3")
    (old, *_), metadata_files = table.metadata.snapshots, local(table.location()) / "metadata"
    expiry = catalog.load_table(table.name()).maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1))
    before_the_server_gets_it(catalog, lambda: lake.load().manage_snapshots().create_tag(old.snapshot_id, "mine").commit())
    there = {path.name for path in metadata_files.iterdir()}
    with pytest.raises(CommitError, match=r"dropped mine, .* No file was deleted: register (\S+) under another name"):
        expiry.commit()
    assert there <= {path.name for path in metadata_files.iterdir()}
    assert "mine" not in lake.load().metadata.refs
    kept = max(metadata_files.glob("*.metadata.json"), key=lambda path: "mine" in path.read_text() and path.stat().st_mtime_ns)
    copy = catalog.register_table(lake.name("kept"), f"file://{kept}")
    assert sorted(copy.scan(snapshot_id=old.snapshot_id).to_arrow()["id"].to_pylist()) == [0, 1, 2]


def test_a_commit_beside_keks_that_are_wrapped_anew_is_made(lake: RestLake) -> None:
    """The KEK is the same; to say that others cannot read the commit would make a job add its rows twice."""
    catalog = lake.catalog()
    lake.make(rows=3)
    table = catalog.load_table(lake.name("t"))
    before_the_server_gets_it(catalog, lambda: lake.load().maintenance.rotate("wrap"))
    table.append(people(3, 3))
    assert ids(lake.load()) == list(range(6))
