"""Updates are applied as PyIceberg applies them, without copying what does not change."""

from __future__ import annotations

from typing import Any

from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, update_table_metadata

from icelock.metadata.updates import apply_updates
from tests.lakes.sqlite import KEYED, TestLake, people

UPDATES = (SetPropertiesUpdate(updates={"a": "1", "b": "2"}), RemovePropertiesUpdate(removals=["a"]))


def table(lake: TestLake, **properties: str) -> Any:
    made = lake.catalog().create_table("db.t", people().schema, properties={**KEYED, **properties})
    made.append(people())
    made.append(people(10))
    return made


def test_the_result_is_pyiceberg_s(lake: TestLake) -> None:
    base = table(lake, **{"write.metadata.previous-versions-max": "2"}).metadata
    theirs = update_table_metadata(base, UPDATES, metadata_location="file:/m.json")
    ours = apply_updates(base, UPDATES, now_ms=lambda: theirs.last_updated_ms, metadata_location="file:/m.json")
    assert ours == theirs
    assert [entry.metadata_file for entry in ours.metadata_log][-1] == "file:/m.json"
    assert len(ours.metadata_log) == 2


def test_what_does_not_change_is_shared_and_the_base_stays(lake: TestLake) -> None:
    base = table(lake).metadata
    before = base.model_dump_json()
    later = base.last_updated_ms + 5
    result = apply_updates(base, UPDATES, now_ms=lambda: later)
    assert all(one is other for one, other in zip(result.snapshots, base.snapshots, strict=True))
    assert (result.properties["b"], result.last_updated_ms) == ("2", later)
    assert result.metadata_log == base.metadata_log, "there is no entry while nothing is committed"
    assert base.model_dump_json() == before


def test_no_change_is_the_same_object(lake: TestLake) -> None:
    base = table(lake).metadata
    assert apply_updates(base, (), now_ms=lambda: 5, metadata_location="file:/m.json") is base
    assert apply_updates(base, (SetPropertiesUpdate(updates={}),), now_ms=lambda: 5, metadata_location="file:/m.json") is base


def test_a_property_that_is_gone_already_is_no_error_to_remove(lake: TestLake) -> None:
    """As in Java (``TableMetadata.Builder.removeProperties``); PyIceberg's own handler raises a KeyError."""
    base = table(lake, note="1").metadata
    result = apply_updates(base, (RemovePropertiesUpdate(removals=["note", "never"]),), now_ms=lambda: base.last_updated_ms)
    assert dict(base.properties) == {**result.properties, "note": "1"}
    assert apply_updates(base, (RemovePropertiesUpdate(removals=["never"]),), now_ms=lambda: 5, metadata_location="file:/m.json") is base


def test_two_who_remove_one_property_both_get_what_they_asked_for(lake: TestLake) -> None:
    """As two ``icelock rotate`` at once, each of which takes the mark of the rotation away when all is done."""
    made = table(lake, note="1")
    first, second = (lake.catalog().load_table("db.t") for _ in range(2))
    first.transaction().remove_properties("note").commit_transaction()
    second.transaction().remove_properties("note").commit_transaction()
    assert "note" not in second.properties
    assert made.refresh().scan().count() == people().num_rows * 2
