"""Manifests and manifest lists of plain tables of versions 1 and 2: bounded and typed errors, though PyIceberg reads them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.manifest import clear_manifest_cache

import icelock
from icelock.errors import FormatError
from tests.lakes.sqlite import TestLake, people

VERSIONS = ["1", "2"]
CODECS = ["null", "deflate", "zstandard"]
WHICH = ["manifest", "manifest list"]
SMALL = {"icelock.limits.avro-block-bytes": "200000"}


def plain_table(lake: TestLake, version: str) -> Any:
    properties = {"format-version": version, "icelock.plain": "true"}
    table = lake.catalog().create_table("db.p", people().schema, properties=properties)
    table.append(people(0, 3))
    return table


def path_of(table: Any, which: str) -> Path:
    snapshot = table.current_snapshot()
    location = snapshot.manifest_list if which == "manifest list" else snapshot.manifests(table.io)[0].manifest_path
    return Path(location.removeprefix("file://"))


def scanned(lake: TestLake, **settings: str) -> list[int]:
    """Scan in a process that has read nothing: PyIceberg keeps what manifest lists said."""
    clear_manifest_cache()
    return sorted(lake.catalog(**settings).load_table("db.p").scan().to_arrow().column("id").to_pylist())


def written(path: Path, codec: str, change: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
    """Write an Avro file again with fastavro."""
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        kept = {name: value for name, value in reader.metadata.items() if not name.startswith("avro.")}
        schema, rows = reader.writer_schema, list(reader)
    for row in rows:
        change(row)
    out = io.BytesIO()
    fastavro.writer(out, schema, rows, codec=codec, metadata=kept)
    path.write_bytes(out.getvalue())


def endless(row: dict[str, Any]) -> None:
    """Put much text into a row that takes no room when it is packed."""
    inner = row.get("data_file", row)
    name = "file_path" if "file_path" in inner else "manifest_path"
    inner[name] += "a" * 1_000_000


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_other_writers_wrote_is_read(version: str, codec: str, which: str, lake: TestLake) -> None:
    written(path_of(plain_table(lake, version), which), codec)
    assert scanned(lake) == [0, 1, 2]


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_block_that_unpacks_to_much_is_refused(version: str, codec: str, which: str, lake: TestLake) -> None:
    path = path_of(plain_table(lake, version), which)
    written(path, codec, endless)
    with pytest.raises(FormatError, match=r"holds more than 200000 bytes in an Avro block.*icelock\.limits\.avro-block-bytes"):
        scanned(lake, **SMALL)


def test_a_manifest_that_is_too_large_as_it_lies_is_refused(lake: TestLake) -> None:
    plain_table(lake, "2")
    with pytest.raises(FormatError, match=r"icelock\.limits\.manifest-bytes"):
        scanned(lake, **{"icelock.limits.manifest-bytes": "1000"})


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_and_every_file_that_is_no_avro_is_a_format_error(version: str, which: str, lake: TestLake) -> None:
    path = path_of(plain_table(lake, version), which)
    whole = path.read_bytes()
    for damaged in (b"", b"Obj", whole[:-1], whole[: len(whole) // 2], whole[:-17], b"PAR1" + whole[4:], whole[:4] + b"\xff" * 40):
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match=path.name):
            scanned(lake)


@pytest.mark.parametrize("version", VERSIONS)
def test_lengths_that_lead_out_of_a_block_are_a_format_error(version: str, lake: TestLake) -> None:
    """PyIceberg's decoder in C reads what lies behind."""
    table = plain_table(lake, version)
    [task] = table.scan().plan_files()
    path = path_of(table, "manifest")
    written(path, "null")
    whole = path.read_bytes()
    at = whole.rindex(task.file.file_path.encode())
    for length in (b"\xfe\x7f", b"\x81\x01"):  # 8191 bytes, -65 bytes
        path.write_bytes(whole[: at - 2] + length + whole[at:])
        with pytest.raises(FormatError, match=path.name):
            scanned(lake)


def test_a_manifest_by_another_name_is_looked_at_too(lake: TestLake) -> None:
    """Names are the metadata's: a list that calls its manifest Parquet."""
    table = plain_table(lake, "2")
    manifest, listed = path_of(table, "manifest"), path_of(table, "manifest list")
    written(manifest, "deflate", endless)
    other = manifest.rename(manifest.with_suffix(".parquet"))
    written(listed, "null", lambda row: row.update(manifest_path=f"file://{other}", manifest_length=other.stat().st_size))
    with pytest.raises(FormatError, match="holds more than 200000 bytes in an Avro block"):
        scanned(lake, **SMALL)


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_static_table_has_the_same_limits(version: str, which: str, lake: TestLake) -> None:
    table = plain_table(lake, version)
    assert icelock.StaticTable.from_metadata(table.metadata_location).scan().count() == 3
    written(path_of(table, which), "deflate", endless)
    clear_manifest_cache()
    with pytest.raises(FormatError, match="holds more than 200000 bytes in an Avro block"):
        icelock.StaticTable.from_metadata(table.metadata_location, SMALL).scan().count()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_static_table_with_many_files_is_planned_row_by_row(version: str, lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is once polars was imported: manifests of versions 1 and 2 have no row ids to plan columns with."""
    monkeypatch.setattr("icelock.plan.columnar._MANY_ENTRIES", 0)
    table = plain_table(lake, version)
    scan = icelock.StaticTable.from_metadata(table.metadata_location).scan(row_filter="id > 0")
    assert sorted(scan.to_arrow().column("id").to_pylist()) == [1, 2]
    assert scan.count() == 2


def test_a_plain_table_is_written_and_purged_as_before(lake: TestLake) -> None:
    table = plain_table(lake, "2")
    table.append(people(3, 2))
    table.delete("id = 1")
    assert scanned(lake) == [0, 2, 3, 4]
    table.catalog.purge_table("db.p")
    assert not [path for path in lake.files() if "/p/" in path and path.endswith(".parquet")]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_writes_a_plain_table_has_schemas_and_specs_of_its_own(lake: TestLake, version: str) -> None:
    """PyIceberg's ``Schema.model_dump_json`` walks through the dictionary that it keeps indexes in when another thread asks for them."""
    table = plain_table(lake, version)
    own = table.at_one_version()
    pairs = [*zip(own.metadata.schemas, table.metadata.schemas, strict=True), (own.spec(), table.spec()), (own.schema(), table.schema())]
    assert all(one == other and one is not other and one.__dict__ is not other.__dict__ for one, other in pairs)
    assert own.metadata == table.metadata
    own.append(people(3, 2))
    assert scanned(lake) == [0, 1, 2, 3, 4]
