"""Texts in metadata.json that are no numbers and no name mapping where one belongs: what commits and scans make of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from icelock.errors import FormatError, PolicyError
from tests.lakes.sqlite import KEYED, TestLake, people

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def registered(lake: TestLake) -> Callable[[Change], Any]:
    """A function that changes the metadata file of a table with ten rows and gives the table that it is then."""
    catalog = lake.catalog()
    made = catalog.create_table("db.t", people().schema, properties=KEYED)
    made.append(people())
    stored = json.loads(Path(made.metadata_location).read_text(encoding="utf-8"))

    def register(change: Change) -> Any:
        change(stored)
        other = Path(made.metadata_location).with_name("00005-other.metadata.json")
        other.write_text(json.dumps(stored), encoding="utf-8")
        return catalog.register_table("db.other", str(other))

    return register


@pytest.mark.parametrize("total", ["text", "1.5", "9" * 5000, "1_0", str(2**63)])
def test_a_total_that_is_no_number_stays_out_as_in_java(registered, total):
    """Java ``SnapshotProducer.updateTotal``: NumberFormatException, "ignore and do not add total"."""
    table = registered(lambda stored: stored["snapshots"][-1]["summary"].update({"total-records": total}))
    table.append(people(10, 5))
    summary = table.current_snapshot().summary
    assert "total-records" not in summary.additional_properties
    assert summary["added-records"] == "5"
    assert summary["total-data-files"] == "2"
    assert table.scan().count() == 15


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("commit.retry.num-retries", "text"),
        ("commit.retry.min-wait-ms", "9" * 30),
        ("write.metadata.previous-versions-max", "1.5"),
        ("write.parquet.page-size-bytes", "9" * 30),
        ("write.target-file-size-bytes", "9" * 5000),
        ("commit.manifest.min-count-to-merge", "many"),
    ],
)
def test_a_setting_that_is_no_number_is_refused_by_name_and_can_be_put_right(lake, registered, name, text):
    table = registered(lambda stored: stored["properties"].update({name: text}))
    before = lake.files()
    with pytest.raises(PolicyError, match=name):
        table.append(people(10, 5))
    assert lake.files() == before
    table.transaction().remove_properties(name).commit_transaction()
    lake.catalog().load_table("db.other").append(people(10, 5))
    assert lake.catalog().load_table("db.other").scan().count() == 15


@pytest.mark.parametrize("text", ["text", "7", "null", "[1]", '{"a": 1}', '[{"names": 1}]', "[" * 5000])
def test_a_name_mapping_that_is_none_is_said_to_be_none(registered, text):
    """Java ``NameMappingParser``: an array of objects with lists of names."""
    table = registered(lambda stored: stored["properties"].update({"schema.name-mapping.default": text}))
    for use in (
        lambda: table.scan().to_arrow(),
        lambda: table.delete("id = 1"),
        lambda: table.overwrite(people(0, 1), "id = 1"),
        lambda: table.update_schema().add_column("more", LongType()).commit(),
    ):
        with pytest.raises(FormatError, match=r"schema\.name-mapping\.default"):
            use()
    table.transaction().remove_properties("schema.name-mapping.default").commit_transaction()
    assert table.scan().to_arrow().num_rows == 10
