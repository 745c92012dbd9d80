"""Metadata that is kept is that of the file's bytes, so a changed file is never overlooked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from icelock.catalog.trust.metadata_cache import MetadataCache
from icelock.errors import IntegrityError
from tests.lakes.sqlite import KEYED, TestLake, people


def test_the_last_sixteen_are_kept() -> None:
    cache: Any = MetadataCache()

    def unknown() -> Any:
        raise KeyError

    for number in range(17):
        cache.put(bytes([number]), f"metadata {number}", metadata_hash=None)
        assert cache.get(b"\x00", unknown) == "metadata 0"
    for number in (0, *range(2, 17)):
        assert cache.get(bytes([number]), unknown) == f"metadata {number}"
    with pytest.raises(KeyError):
        cache.get(b"\x01", unknown)


def test_a_file_is_parsed_once_and_again_when_its_bytes_change(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = lake.catalog()
    catalog.create_table("db.t", people().schema, properties=KEYED).append(people())
    parsed: list[str] = []
    real = __import__("icelock.catalog.named", fromlist=["x"]).decode_metadata

    def decode(data: bytes, *, location: str, limit: int) -> Any:
        parsed.append(location)
        return real(data, location=location, limit=limit)

    monkeypatch.setattr("icelock.catalog.named.decode_metadata", decode)
    fresh = lake.catalog()
    table = fresh.load_table("db.t")
    table.append(people(10))
    assert fresh.load_table("db.t").scan().count() == 20
    assert len(parsed) == 1, "what this catalog wrote it knows"
    path = Path(table.metadata_location.removeprefix("file://"))
    path.write_text(path.read_text().replace('"city"', '"town"'))
    with pytest.raises(IntegrityError, match="might have been modified"):
        fresh.load_table("db.t")
    with pytest.raises(IntegrityError, match="might have been modified"):
        table.append(people(20))
    assert len(parsed) == 2
