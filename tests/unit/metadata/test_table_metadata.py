"""Parsing of metadata.json: versions, keys, damage."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.metadata import TableMetadataV2

from icelock.errors import FormatError, IntegrityError, PolicyError
from icelock.metadata.table_metadata import TableMetadataV3, parse_metadata, parse_metadata_object, read_metadata
from icelock.table.guard.rules import check_metadata

GOLDEN = Path(__file__).parents[2] / "golden" / "data"
CURRENT = next((GOLDEN / "ctas" / "table" / "metadata").glob("*.metadata.json"))


@pytest.fixture
def data() -> dict[str, Any]:
    facts = json.loads((GOLDEN / "ctas" / "table.json").read_text(encoding="utf-8"))
    path = CURRENT.parent / facts["metadata_location"].rsplit("/", 1)[1]
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


@pytest.mark.parametrize("version", [4, 0, "3", None])
def test_other_format_versions_are_refused_by_name(data: dict[str, Any], version: Any) -> None:
    """C-47."""
    data["format-version"] = version
    with pytest.raises(FormatError, match=r"t\.json: format version .* is not supported"):
        parse_metadata_object(data, location="t.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format-version": 3}', "\x00\x01"])
def test_what_is_not_table_metadata_is_a_format_error(text: str) -> None:
    with pytest.raises(FormatError, match=r"t\.json"):
        parse_metadata(text, location="t.json")


def test_a_key_entry_that_is_damaged_is_a_format_error(data: dict[str, Any]) -> None:
    data["encryption-keys"][0]["encrypted-key-metadata"] = "not base64!"
    with pytest.raises(FormatError):
        parse_metadata_object(data, location="t.json")


def test_encryption_properties_below_version_3_are_refused(data: dict[str, Any]) -> None:
    """C-14."""
    data["format-version"] = 2
    for snapshot in data["snapshots"]:
        del snapshot["key-id"]
    del data["encryption-keys"]
    metadata = parse_metadata_object(data, location="t.json")
    assert isinstance(metadata, TableMetadataV2)
    with pytest.raises(PolicyError, match="encryption needs version 3"):
        check_metadata(metadata, location="t.json")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("left", ["encryption-keys", "snapshots"])
def test_keys_below_version_3_are_noticed(data: dict[str, Any], version: int, left: str) -> None:
    """Spec: encryption-keys and a snapshot's key-id are of version 3."""
    data["format-version"] = version
    del data["properties"]["encryption.key-id"]
    if left == "snapshots":
        del data["encryption-keys"]
    else:
        for snapshot in data["snapshots"]:
            del snapshot["key-id"]
    with pytest.raises(IntegrityError, match=rf"t\.json has encryption keys but format version {version}"):
        parse_metadata_object(data, location="t.json")


def test_a_removed_key_id_is_noticed_while_keys_are_there(data: dict[str, Any]) -> None:
    """C-15."""
    del data["properties"]["encryption.key-id"]
    metadata = parse_metadata_object(data, location="t.json")
    with pytest.raises(IntegrityError, match=r"no encryption\.key-id"):
        check_metadata(metadata, location="t.json")


def test_gzip_metadata_is_read(tmp_path: Path, data: dict[str, Any]) -> None:
    path = tmp_path / "00000-x.gz.metadata.json"
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    metadata = read_metadata(PyArrowFileIO().new_input(str(path)))
    assert isinstance(metadata, TableMetadataV3)
    assert [key.key_id for key in metadata.encryption_keys] == [key["key-id"] for key in data["encryption-keys"]]


def test_a_new_table_starts_row_ids_at_zero() -> None:
    """C-46."""
    facts = json.loads((GOLDEN / "empty" / "table.json").read_text(encoding="utf-8"))
    text = (GOLDEN / "empty" / "table" / "metadata" / facts["metadata_location"].rsplit("/", 1)[1]).read_text(encoding="utf-8")
    metadata = parse_metadata(text, location="empty")
    assert isinstance(metadata, TableMetadataV3)
    assert metadata.next_row_id == 0
    assert metadata.encryption_keys == []
