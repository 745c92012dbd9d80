"""A server that makes a table in a form of its own: refused before a row is written, since partition values and places are plain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

from icelock.errors import CommitError, PolicyError
from tests.helpers.tables import ids
from tests.lakes.sqlite import KEYED, people
from tests.lakes.stub import StubLake
from tests.servers.rest_stub import RestStub


def set_property(name: str, value: str) -> Callable[[Any], None]:
    return lambda metadata: metadata["properties"].update({name: value})


def partition(metadata: Any) -> None:
    fields = [{"source-id": 2, "field-id": 1000, "transform": "identity", "name": "secret"}]
    metadata["partition-specs"] = [{"spec-id": 0, "fields": fields}]
    metadata["last-partition-id"] = 1000


def sort(metadata: Any) -> None:
    fields = [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}]
    metadata["sort-orders"] = [{"order-id": 1, "fields": fields}]
    metadata["default-sort-order-id"] = 1


def column(**change: Any) -> Callable[[Any], None]:
    return lambda metadata: metadata["schemas"][0]["fields"][1].update(change)


FORMS: dict[str, tuple[Callable[[Any], None], str]] = {
    "a spec": (partition, "another partition spec"),
    "an order": (sort, "another sort order"),
    "a name": (column(name="other"), "other columns"),
    "a type": (column(type="binary"), "other columns"),
    "required": (column(required=True), "other columns"),
    "the order of columns": (lambda metadata: metadata["schemas"][0]["fields"].reverse(), "other columns"),
    "a folder for data": (set_property("write.data.path", "file:///elsewhere"), r"write\.data\.path is 'file:///elsewhere'"),
    "a folder for metadata": (set_property("write.metadata.path", "file:///elsewhere"), r"write\.metadata\.path is"),
    "a class of places": (set_property("write.location-provider.impl", "org.example.Elsewhere"), r"write\.location-provider\.impl is"),
}


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_a_table_in_another_form_is_refused_before_a_row_is_written(form: str, at_once: bool, lake: StubLake, stub: RestStub) -> None:  # noqa: FBT001
    change, words = FORMS[form]
    create, loaded = stub.create, stub.loaded

    def made(space: str, body: Any) -> Any:
        answer = create(space, body)
        change(answer["metadata"])
        return answer

    stub.create, stub.loaded = made, loaded
    make = lake.catalog().create_table if at_once else lake.catalog().create_table_transaction
    with pytest.raises(CommitError, match=rf"in a form of its own: .*{words}"):
        make("db.t", people().schema, properties=KEYED)
    assert not [path for path in lake.files() if path.endswith((".parquet", ".avro"))]


def test_other_ids_are_no_other_form(lake: StubLake, stub: RestStub) -> None:
    """Servers give ids anew: here each is larger by 100, in columns, partitions and order alike."""
    create = stub.create

    def renumbered(value: Any) -> Any:
        if isinstance(value, list):
            return [renumbered(one) for one in value]
        if not isinstance(value, dict):
            return value
        ids = {"id", "source-id", "element-id"}
        return {name: one + 100 if name in ids else renumbered(one) for name, one in value.items()}

    def made(space: str, body: Any) -> Any:
        answer = create(space, {**body, **{name: renumbered(body[name]) for name in ("schema", "partition-spec", "write-order")}})
        answer["metadata"].update({"last-column-id": 105, "last-partition-id": 1000})
        return answer

    stub.create = made
    inner = StructType(NestedField(5, "x", LongType(), required=True))
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "name", StringType()),
        NestedField(3, "many", ListType(4, inner, element_required=False)),
    )
    table = lake.catalog().create_table(
        "db.t",
        schema,
        partition_spec=PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket")),
        sort_order=SortOrder(SortField(2, IdentityTransform())),
        properties={**KEYED, "write.data.path": f"file://{lake.folder}/data"},
    )
    assert table.schema().find_field("id").field_id == 101


def spec_of_the_server(stub: RestStub) -> None:
    """Partition the table that is there by name, as another client or the server itself may do."""
    metadata = stub.tables["db", "t"]["metadata"]
    fields = [{"source-id": 2, "field-id": 1000, "transform": "identity", "name": "x"}]
    metadata["partition-specs"].append({"spec-id": 1, "fields": fields})
    metadata.update({"default-spec-id": 1, "last-partition-id": 1000})
    metadata["properties"].update({"write.object-storage.enabled": "false", "write.object-storage.partitioned-paths": "true"})


@pytest.mark.parametrize("hidden", [False, True])
def test_a_client_can_keep_values_out_of_paths_whatever_the_server_partitions_by(hidden: bool, lake: StubLake, stub: RestStub) -> None:  # noqa: FBT001
    catalog = lake.catalog(**({"icelock.partition-values-in-paths": "false"} if hidden else {}))
    held = lake.table(rows=1, catalog=catalog)
    values = set(people(1, 3).column("name").to_pylist())
    spec_of_the_server(stub)
    held.append(people(1, 1))  # on what the client holds, made again on what the server has
    catalog.load_table("db.t").append(people(2, 1))
    with catalog.load_table("db.t").transaction() as transaction:
        transaction.overwrite(people(3, 1))
    leaked = [path for path in lake.files() for value in values if f"x={value}" in path]
    assert bool(leaked) is not hidden
    assert not hidden or not [path for path in lake.files() for value in values if value in path]
    assert ids(lake.catalog().load_table("db.t")) == [3]


def test_a_setting_that_is_neither_true_nor_false_is_refused(lake: StubLake) -> None:
    with pytest.raises(PolicyError, match=r"icelock\.partition-values-in-paths is 'no'; it must be true or false"):
        lake.catalog(**{"icelock.partition-values-in-paths": "no"})
