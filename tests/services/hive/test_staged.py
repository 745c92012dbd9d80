"""Tables that are made or replaced with their rows in one commit, in a real metastore."""

from __future__ import annotations

import pytest
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

from icelock.errors import PolicyError
from tests.helpers.tables import ids, local
from tests.lakes.hive import HiveLake, sha256
from tests.lakes.sqlite import KEYED, people

pytestmark = pytest.mark.hive


def data_files(hive: HiveLake) -> set[str]:
    return {name for name in hive.files() if "metadata.json" not in name}


def test_a_table_and_its_rows_are_one_row_of_the_metastore(hive: HiveLake) -> None:
    tx = hive.catalog().create_table_transaction(hive.name(), people().schema, properties=KEYED)
    tx.append(people())
    tx.delete("id < 3")
    with pytest.raises(NoSuchTableError):
        hive.load()
    table = tx.commit_transaction()
    assert ids(table) == ids(hive.load()) == list(range(3, 10))
    parameters = hive.parameters()
    assert parameters["metadata_hash"] == sha256(local(parameters["metadata_location"]).read_bytes())
    assert "previous_metadata_location" not in parameters
    assert parameters["encryption.key-id"] == "keyA"
    assert len(hive.metadata_files()) == 1
    assert hive.locks() == []
    hive.load().append(people(20, 1))
    assert ids(hive.load()) == [*range(3, 10), 20]


def test_another_writer_makes_the_table_first(hive: HiveLake) -> None:
    tx = hive.catalog().create_table_transaction(hive.name(), people().schema, properties=KEYED)
    tx.append(people())
    hive.make(rows=2)
    with pytest.raises(TableAlreadyExistsError):
        tx.commit_transaction()
    assert ids(hive.load()) == [0, 1]
    assert len(data_files(hive)) == 3, "a data file, a manifest and its list, all of the other writer"
    assert hive.locks() == []


def test_a_table_is_replaced(hive: HiveLake) -> None:
    first = hive.make(rows=5)
    tx = hive.catalog().create_or_replace_table_transaction(hive.name(), people().schema, properties={"owner": "me"})
    tx.append(people(50, 2))
    assert ids(hive.load()) == list(range(5))
    tx.commit_transaction()
    now = hive.load()
    assert ids(now) == [50, 51]
    assert now.metadata.table_uuid == first.metadata.table_uuid
    assert hive.parameters()["owner"] == "me"
    assert hive.parameters()["previous_metadata_location"] == first.metadata_location
    with pytest.raises(PolicyError):
        hive.catalog().replace_table_transaction(hive.name(), people().schema, properties={"encryption.key-id": "keyB"})
    assert ids(hive.load()) == [50, 51]
