"""The metadata writer against 61 files and 12 hashes that Java Iceberg 1.12.0 wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
from pyiceberg.partitioning import PartitionSpec

from icelock.metadata.canonical_json import canonical_json, dumps, metadata_hash, schema_json, spec_json
from icelock.metadata.table_metadata import Snapshot, TableMetadataV3, parse_metadata, parse_metadata_object

GOLDEN = Path(__file__).parents[2] / "golden" / "data"
FILES = sorted(GOLDEN.glob("*/table/metadata/*.metadata.json"))


def parse(path: Path) -> TableMetadataV3:
    metadata = parse_metadata(path.read_text(encoding="utf-8"), location=path.name)
    assert isinstance(metadata, TableMetadataV3)
    return metadata


def test_every_golden_file_is_there() -> None:
    assert len(FILES) == 61


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-4]}-{path.name[:5]}")
def test_text_is_java_s_byte_for_byte(path: Path) -> None:
    """C-43: values survive a load-commit-load cycle unchanged."""
    assert canonical_json(parse(path)) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("info", sorted(GOLDEN.glob("*/table.json")), ids=lambda path: path.parent.name)
def test_hash_is_that_of_the_hive_metastore(info: Path) -> None:
    facts = json.loads(info.read_text(encoding="utf-8"))
    wanted = facts["hms_parameters"].get("metadata_hash")
    current = info.parent / "table" / "metadata" / facts["metadata_location"].rsplit("/", 1)[1]
    assert (wanted is None) == (info.parent.name == "plain_v3")
    if wanted is not None:
        assert metadata_hash(parse(current)) == wanted


def test_control_characters_are_escaped_in_upper_case_and_others_not_at_all() -> None:
    """format.md: lower-case escapes and ASCII escapes are refused by Java as "might have been modified"."""
    assert dumps({"k": 'a\x1f\x00\n\t\r\b\f"\\\\u001f é \x7f 😀/'}) == '{"k":"a\\u001F\\u0000\\n\\t\\r\\b\\f\\"\\\\\\\\u001f é \x7f 😀/"}'


def test_unknown_fields_survive_and_stay_out_of_the_hash() -> None:
    """C-47."""
    path = FILES[-1]
    data = json.loads(path.read_text(encoding="utf-8"))
    before = metadata_hash(parse(path))
    data["from-the-future"] = {"b": 1, "a": [True, None]}
    data["snapshots"][0]["also-new"] = "x"
    metadata = parse_metadata_object(data, location="future")
    assert isinstance(metadata, TableMetadataV3)
    written = json.loads(canonical_json(metadata))
    assert written["from-the-future"] == {"b": 1, "a": [True, None]}
    assert written["snapshots"][0]["also-new"] == "x"
    assert metadata_hash(metadata) == before


def test_versions_that_share_parts_are_written_as_if_each_were_alone() -> None:
    """The texts of shared parts are kept: a part that was changed in a copy has its own, and JSON says what the file must be."""
    path = max(FILES, key=lambda path: path.stat().st_size)
    metadata = parse(path)
    wanted = json.loads(canonical_json(metadata))
    first, *rest = metadata.snapshots
    assert rest
    moved = first.model_copy(update={"manifest_list": "file:/moved.avro"})
    (key, *_), log = metadata.encryption_keys, metadata.snapshot_log[0]
    changed = metadata.model_copy(
        update={
            "snapshots": [moved, *rest],
            "encryption_keys": [*metadata.encryption_keys, replace(key, key_id="another")],
            "snapshot_log": [log.model_copy(update={"timestamp_ms": 7}), *metadata.snapshot_log[1:]],
            "schemas": [*metadata.schemas, metadata.schemas[0].model_copy(update={"schema_id": 99})],
        }
    )
    wanted["snapshots"][0]["manifest-list"] = "file:/moved.avro"
    wanted["encryption-keys"].append({**wanted["encryption-keys"][0], "key-id": "another"})
    wanted["snapshot-log"][0]["timestamp-ms"] = 7
    wanted["schemas"].append({**wanted["schemas"][0], "schema-id": 99})
    assert canonical_json(changed) == dumps(wanted)
    assert canonical_json(metadata) == path.read_text(encoding="utf-8")


def test_a_version_makes_the_text_of_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = parse(max(FILES, key=lambda path: path.stat().st_size))
    dump, dumped = Snapshot.model_dump, list[int]()

    def counted(self: Snapshot, **how: Any) -> dict[str, Any]:
        dumped.append(self.snapshot_id)
        return dump(self, **how)

    monkeypatch.setattr(Snapshot, "model_dump", counted)
    canonical_json(metadata)
    assert dumped == [snapshot.snapshot_id for snapshot in metadata.snapshots]
    dumped.clear()
    more = metadata.model_copy(update={"snapshots": [*metadata.snapshots, metadata.snapshots[0].model_copy(update={"snapshot_id": 5})]})
    canonical_json(more)
    metadata_hash(more)
    assert dumped == [5]
    assert schema_json(more.schema()) is schema_json(metadata.schema())


class Meanwhile(str):
    """A name in an object's dictionary; who looks at it while walking through finds that another thread has asked for an index."""

    __slots__ = ("_ask",)

    def __new__(cls, ask: Callable[[], object]) -> Self:
        made = super().__new__(cls, "_meanwhile")
        made._ask = ask
        return made

    def startswith(self, *_: object) -> bool:
        self._ask()
        return True


def test_threads_that_look_into_a_schema_while_it_is_written() -> None:
    """PyIceberg keeps the indexes that it makes when they are first asked for in the dictionary that it walks through to serialize."""
    path = next(path for path in FILES if "part_parquet" in path.parts)
    metadata = parse(path)
    schema, spec = metadata.schema(), metadata.spec()
    for shared, ask in ((schema, lambda: schema.accessor_for_field(1)), (spec, lambda: spec.fields_by_source_id(1))):
        shared.__dict__[Meanwhile(ask)] = None
    assert canonical_json(metadata) == path.read_text(encoding="utf-8")
    assert json.loads(schema_json(schema)) == json.loads(canonical_json(metadata))["schemas"][-1]
    assert PartitionSpec.model_validate_json(spec_json(spec)) == spec
    for shared in (schema, spec):
        with pytest.raises(RuntimeError, match="dictionary changed size during iteration"):
            shared.model_dump()


def test_column_defaults_are_written_as_java_does() -> None:
    """format.md: decimals and timestamps as text, binary as upper-case hex, numbers bare."""
    data = json.loads(FILES[0].read_text(encoding="utf-8"))
    fields = [
        {"id": 1, "name": "n", "required": True, "type": "long", "initial-default": 5, "write-default": 6},
        {"id": 2, "name": "d", "required": False, "type": "decimal(9, 2)", "doc": "money", "initial-default": "5.10"},
        {"id": 3, "name": "b", "required": False, "type": "binary", "write-default": "0AFF"},
        {"id": 4, "name": "t", "required": False, "type": "timestamptz", "initial-default": "2024-01-02T03:04:05+00:00"},
        {"id": 5, "name": "day", "required": False, "type": "date", "initial-default": "2024-01-02"},
    ]
    data["schemas"] = [{"type": "struct", "schema-id": 0, "identifier-field-ids": [1], "fields": fields}]
    data["current-schema-id"] = 0
    metadata = parse_metadata_object(data, location="defaults")
    assert isinstance(metadata, TableMetadataV3)
    text = canonical_json(metadata)
    assert f'"schemas":{dumps(data["schemas"])}' in text
