"""What is REST's own, on Iceberg's server: views, namespaces in namespaces, and plain tables that are staged by the server."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyiceberg.view.metadata import SQLViewRepresentation, ViewVersion

from tests.helpers.tables import ids
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
