"""Every byte counts: whichever byte of a table is changed, the answer is a typed error or the very same rows (case C-02).

Two small tables lie in memory: one that icelock wrote (Parquet, Avro, a deletion vector), one that Java did. Each position gets one
seeded flip, and the whole table is read again; half of the positions are for today, the others for tomorrow (``tests.helpers.turns``).
Identical rows are right only for bytes that a read of all rows does not need: Java's page indexes, each of which is authenticated when it
is used. AGS1 has no such byte. How many there were of each is printed.

metadata.json is not encrypted; its hash stands in the Hive metastore, so each of its bytes is swept with that check. A name of a
field whose value is the default may change there: metadata and rows are the same without it.
"""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import icelock
from icelock.catalog.hive.parameters import check_row, row_parameters
from icelock.errors import FormatError, IntegrityError, KeyUnavailableError, PolicyError
from icelock.format.key_metadata import KeyMetadata
from icelock.io.parquet import decryption_properties
from icelock.metadata.table_metadata import read_metadata
from tests.faults.memory_files import STORE, drop_store, files_below, make_store
from tests.golden.relocate import WRITTEN_AT, catalog_properties, copy_table, metadata_location
from tests.golden.rows import rows
from tests.helpers.turns import in_turn
from tests.lakes.sqlite import KEYED, TestLake

pytestmark = pytest.mark.slow

MOST = {"ours": 5000, "java": 2500}
SEED = 20261128
TYPED = (IntegrityError, KeyUnavailableError, FormatError)
IDENTICAL = "identical rows"
MEMORY_IO = "tests.faults.memory_files.MemoryFileIO"


@dataclass
class Sweep:
    """A table in memory: ``store`` are its files, ``current`` its metadata file."""

    name: str
    store: dict[str, bytearray]
    current: str
    properties: dict[str, str]

    def table(self) -> Any:
        return icelock.StaticTable.from_metadata(self.current, {**self.properties, "py-io-impl": MEMORY_IO, STORE: self.name})

    def read(self, table: Any) -> list[str]:
        """Return all rows with their lineage, so that every column of every file is read."""
        columns = (*table.schema().column_names, "_row_id", "_last_updated_sequence_number")
        return rows(table.scan(selected_fields=columns).to_arrow())

    def reachable(self) -> dict[str, str]:
        """Return the files that a read of the current snapshot opens, with their kinds."""
        table = self.table()
        snapshot = table.current_snapshot()
        found = {snapshot.manifest_list: "manifest list"}
        for manifest in snapshot.manifests(table.io):
            found[manifest.manifest_path] = "manifest"
            for entry in manifest.fetch_manifest_entry(table.io):
                file = entry.data_file
                kind = "delete file" if int(file.content) else "data file"
                found[file.file_path] = f"{str(getattr(file.file_format, 'value', file.file_format)).capitalize()} {kind}"
        return found

    def page_indexes(self) -> dict[str, range]:
        """Return where the page indexes of Parquet files lie: between the last column's pages and the footer."""
        found = {}
        for task in self.table().scan().scan_tasks():
            if task.file_format.upper() == "PARQUET":
                data = bytes(self.store[task.path])
                keys = decryption_properties(KeyMetadata.decode(task.key_metadata.reveal()))
                groups = pq.ParquetFile(io.BytesIO(data), decryption_properties=keys).metadata
                chunks = [groups.row_group(g).column(c) for g in range(groups.num_row_groups) for c in range(groups.num_columns)]
                pages_end = max((c.dictionary_page_offset or c.data_page_offset) + c.total_compressed_size for c in chunks)
                found[task.path] = range(pages_end, len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
        return found


def _ours(folder: Path) -> Sweep:
    lake = TestLake(folder)
    catalog = lake.catalog()
    catalog.create_namespace("db")
    kept = pa.table({"id": pa.array(range(4), pa.int64()), "s": ["a", None, "c", "d"]})
    table = catalog.create_table("db.t", kept.schema, properties={**KEYED, "write.delete.mode": "merge-on-read"})
    table.append(kept)
    table.delete("id = 2")
    table.transaction().set_properties({"write.format.default": "avro"}).commit_transaction()
    table.refresh().append(kept.slice(0, 1))
    location = table.location()
    files = files_below(Path(location.removeprefix("file://")), location)
    keep = {key: value for key, value in lake.properties().items() if key.startswith(("encryption.", "kms."))}
    return Sweep("ours", make_store("ours", files), table.metadata_location, keep)


def _java(folder: Path) -> Sweep:
    files = files_below(copy_table("mor_dv", folder), f"{WRITTEN_AT}mor_dv")
    keep = {key: value for key, value in catalog_properties("mor_dv").items() if key.startswith(("encryption.", "kms."))}
    return Sweep("java", make_store("java", files), metadata_location("mor_dv"), keep)


@pytest.fixture(params=[_ours, _java], ids=["ours", "java"])
def sweep(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sweep]:
    made = request.param(tmp_path)
    yield made
    drop_store(made.name)


def test_any_changed_byte_is_a_typed_error_or_changes_nothing(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    table = sweep.table()
    wanted = sweep.read(table)
    assert wanted
    kinds = sweep.reachable()
    positions = [(location, at) for location in kinds for at in range(len(sweep.store[location]))]
    draw = random.Random(SEED)
    if len(positions) > MOST[sweep.name]:
        positions = sorted(draw.sample(positions, MOST[sweep.name]))
    counts: Counter[tuple[str, str]] = Counter()
    unread = sweep.page_indexes()
    for location, at in (positions[number] for number in in_turn(f"flips, {sweep.name}", len(positions), 7)):
        outcome = _outcome(sweep, table, location, at, draw.randrange(1, 256), wanted)
        assert outcome != IDENTICAL or at in unread.get(location, ()), f"byte {at} of {location} has no effect"
        counts[kinds[location], outcome] += 1
    with capsys.disabled():
        print(f"\n{sweep.name}: {counts.total()} flips: " + "; ".join(f"{k}: {o} {n}" for (k, o), n in sorted(counts.items())))
    assert {kind for kind, outcome in counts if outcome != IDENTICAL} == set(kinds.values())


def _outcome(sweep: Sweep, table: Any, location: str, at: int, flip: int, wanted: list[str]) -> str:  # noqa: PLR0913
    data = sweep.store[location]
    data[at] ^= flip
    try:
        read = sweep.read(table)
    except TYPED as e:
        read, error = None, e
    finally:
        data[at] ^= flip
    if read is None:
        assert location in str(error), f"the error does not name {location} (byte {at}): {error}"
        return type(error).__name__
    assert read == wanted, f"byte {at} of {location} (^{flip}) changed the rows without an error"
    return IDENTICAL


@pytest.mark.filterwarnings("ignore:Encountered invalid snapshot summary")  # PyIceberg's, for a damaged "operation"
def test_any_changed_byte_of_metadata_json_is_noticed_by_the_hash(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    """The metastore's row has the hash of the committed file (``catalog.hive.catalog``)."""
    table = sweep.table()
    wanted = sweep.read(table)
    row = row_parameters({}, table.metadata, location=sweep.current)
    data = sweep.store[sweep.current]
    draw = random.Random(SEED)
    counts: Counter[str] = Counter()
    unnamed = 0
    for at in in_turn(f"flips in metadata.json, {sweep.name}", len(data), 7):
        flip = draw.randrange(1, 256)
        data[at] ^= flip
        try:
            found = read_metadata(table.storage.new_input(sweep.current))
            check_row(row, found, table="db.t", location=sweep.current, require_hash=True)
        except (IntegrityError, FormatError, PolicyError) as e:
            counts[type(e).__name__] += 1
            unnamed += sweep.current not in str(e)
        else:
            assert sweep.read(sweep.table()) == wanted, f"byte {at} (^{flip}) was not noticed"
            counts[IDENTICAL] += 1
        finally:
            data[at] ^= flip
    with capsys.disabled():
        print(f"\n{sweep.name}: {counts.total()} flips in metadata.json: " + "; ".join(f"{name} {n}" for name, n in sorted(counts.items())))
    assert unnamed == 0
