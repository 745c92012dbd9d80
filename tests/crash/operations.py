"""The operations that are interrupted: the table they start from, what they do, and the rows before and after.

A table ``db.t`` has ids 0-9 and 10-19 in two files and a snapshot for each.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from icelock.maintenance import convert, remove_plain
from icelock.metadata.table_metadata import is_encrypted
from icelock.table.maintenance.conversion.mixed import is_mixed
from tests.lakes.mixed import ALLOW, mixed_table
from tests.lakes.sqlite import KEYED, TestLake, people

BEFORE = tuple(range(20))
Rows = tuple[int, ...] | None


@dataclass(frozen=True)
class Operation:
    """``act`` works on a catalog; ``before`` and ``after`` are the ids of ``table``, None when there is no such table."""

    act: Callable[[Any], None]
    after: Rows
    before: Rows = BEFORE
    table: str = "db.t"
    properties: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)  # of the catalog

    def make(self, lake: TestLake) -> Any:
        return lake.catalog().create_table("db.t", people().schema, properties={**KEYED, **self.properties})

    def prepare(self, lake: TestLake) -> None:
        made = self.make(lake)
        made.append(people())
        made.append(people(10))


def _table(catalog: Any) -> Any:
    return catalog.load_table("db.t")


def _transaction(catalog: Any) -> None:
    with _table(catalog).transaction() as change:
        change.append(people(100, 2))
        change.delete("id = 3")


def _expire(catalog: Any) -> None:
    _table(catalog).maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()


def _expire_files(catalog: Any) -> None:
    """Expire what an overwrite replaced, so that data files and manifests go as well."""
    table = _table(catalog)
    table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in table.snapshots()[:-1]]).commit()


def _create_as_select(catalog: Any) -> None:
    with catalog.create_table_transaction("db.new", people().schema, properties=KEYED) as change:
        change.append(people(100, 2))


def _upsert(catalog: Any) -> None:
    rows = people(18, 3)
    _table(catalog).upsert(rows.set_column(1, "name", pa.array(["changed"] * 3)), join_cols=["id"])


@dataclass(frozen=True)
class PartitionedOperation(Operation):
    """Its table is partitioned by city: town-0 has the ids that 3 divides."""

    def make(self, lake: TestLake) -> Any:
        made = super().make(lake)
        with made.update_spec() as spec:
            spec.add_identity("city")
        return made


@dataclass(frozen=True)
class ReplacedOperation(Operation):
    """All that its table had was overwritten."""

    def prepare(self, lake: TestLake) -> None:
        super().prepare(lake)
        lake.catalog().load_table("db.t").overwrite(people(200, 3))


@dataclass(frozen=True)
class DeletedOperation(Operation):
    """Two of its rows were deleted by a vector, and the file of rows 10-19 by another, but for one row."""

    def prepare(self, lake: TestLake) -> None:
        super().prepare(lake)
        lake.catalog().load_table("db.t").delete("id in (1, 2) or id > 10")


@dataclass(frozen=True)
class PlainOperation(Operation):
    """Its table is plain, and loses a row by a third commit."""

    def make(self, lake: TestLake) -> Any:
        allowed = lake.catalog(**{"icelock.require-encryption": "false"})
        return allowed.create_table("db.t", people().schema, properties={"format-version": "2", **self.properties})

    def prepare(self, lake: TestLake) -> None:
        super().prepare(lake)
        lake.catalog(**{"icelock.require-encryption": "false"}).load_table("db.t").delete("id = 19")


@dataclass(frozen=True)
class ConvertedOperation(PlainOperation):
    """Its table was plain, and has its plain files still."""

    def prepare(self, lake: TestLake) -> None:
        super().prepare(lake)
        _convert(lake.catalog())


@dataclass(frozen=True)
class MixedOperation(PlainOperation):
    """Its table was plain, got a key id, and then an encrypted file with the rows 100 to 104."""

    settings: Mapping[str, str] = field(default_factory=lambda: ALLOW)

    def prepare(self, lake: TestLake) -> None:
        super().prepare(lake)
        mixed_table(lake, lake.catalog(**{"icelock.require-encryption": "false"}).load_table("db.t"))


def _convert(catalog: Any) -> None:
    """Done again on a table that is encrypted, it has nothing to do."""
    table = _table(catalog)
    if not is_encrypted(table.metadata):
        convert(table, key_id="keyA")


def _convert_history(catalog: Any) -> None:
    table = _table(catalog)
    if not is_encrypted(table.metadata):
        convert(table, key_id="keyA", history="keep")


def _convert_mixed(catalog: Any) -> None:
    table = _table(catalog)
    if is_mixed(table):
        convert(table, key_id="keyA")


def _convert_mixed_history(catalog: Any) -> None:
    table = _table(catalog)
    if is_mixed(table):
        convert(table, key_id="keyA", history="keep")


CONVERTED_FILES = 8


def progress_of(catalog: Any) -> Path:
    """Where a conversion keeps what it has finished: beside the lake's database, so it is put back with the lake."""
    return Path(catalog.properties["warehouse"]).parent / "progress"


@dataclass(frozen=True)
class PlainFilesOperation(PlainOperation):
    """Its plain table has so many files."""

    def prepare(self, lake: TestLake) -> None:
        super().prepare(lake)
        table = lake.catalog(**{"icelock.require-encryption": "false"}).load_table("db.t")
        for number in range(2, CONVERTED_FILES):
            table.append(people(10 * number))


def _convert_again(catalog: Any) -> None:
    table = _table(catalog)
    if not is_encrypted(table.metadata):
        convert(table, key_id="keyA", progress_file=progress_of(catalog))


def _convert_history_again(catalog: Any) -> None:
    table = _table(catalog)
    if not is_encrypted(table.metadata):
        convert(table, key_id="keyA", history="keep", progress_file=progress_of(catalog))


def has_plain_files(table: Any) -> bool:
    return not {"icelock.converted-from", "icelock.removing-plain"}.isdisjoint(table.properties)


def _remove_plain(catalog: Any) -> None:
    table = _table(catalog)
    if has_plain_files(table):
        remove_plain(table)


def _rewrite_deletes(catalog: Any) -> None:
    """Three commits: manifests are put together, data files written without deleted rows, and entries of the old ones taken out."""
    table = _table(catalog)
    table.maintenance.rewrite_manifests()
    table.maintenance.rewrite_deletes(into="data")


def _optimize(catalog: Any) -> None:
    """Four steps with their commits: files and their vectors become one file, old snapshots go, and what nobody has is deleted."""
    done = _table(catalog).maintenance.optimize()
    assert not done.failed, done


def _without(*gone: int) -> tuple[int, ...]:
    return tuple(number for number in BEFORE if number not in gone)


MIXED = (*range(19), *range(100, 105))
PLAIN_FILES = (*range(19), *range(20, 10 * CONVERTED_FILES))

OPERATIONS: dict[str, Operation] = {
    "append": Operation(lambda catalog: _table(catalog).append(people(100, 2)), (*BEFORE, 100, 101)),
    "append that merges manifests": Operation(
        lambda catalog: _table(catalog).append(people(100, 2)),
        (*BEFORE, 100, 101),
        properties={"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"},
    ),
    "overwrite": Operation(lambda catalog: _table(catalog).overwrite(people(200, 3), "id < 15"), (*range(15, 20), 200, 201, 202)),
    "delete, copy-on-write": Operation(lambda catalog: _table(catalog).delete("id in (1, 12)"), _without(1, 12)),
    "delete, merge-on-read": Operation(
        lambda catalog: _table(catalog).delete("id in (1, 12)"), _without(1, 12), properties={"write.delete.mode": "merge-on-read"}
    ),
    "upsert": Operation(_upsert, (*BEFORE, 20)),
    "dynamic partition overwrite": PartitionedOperation(
        lambda catalog: _table(catalog).dynamic_partition_overwrite(people(300, 1)), (*_without(*range(0, 20, 3)), 300)
    ),
    "transaction": Operation(_transaction, (*_without(3), 100, 101)),
    "create": Operation(lambda catalog: catalog.create_table("db.new", people().schema, properties=KEYED), (), before=None, table="db.new"),
    "create as select": Operation(_create_as_select, (100, 101), before=None, table="db.new"),
    "rewrite deletes and manifests": DeletedOperation(
        _rewrite_deletes, (0, *range(3, 11)), before=(0, *range(3, 11)), properties={"write.delete.mode": "merge-on-read"}
    ),
    "expire": Operation(_expire, BEFORE),
    "optimize": DeletedOperation(
        _optimize,
        (0, *range(3, 11)),
        before=(0, *range(3, 11)),
        properties={
            "write.delete.mode": "merge-on-read",
            "icelock.optimize.min-input-files": "2",
            "icelock.optimize.min-manifests": "1",
            "history.expire.max-snapshot-age-ms": "1",
        },
    ),
    "rotate": Operation(lambda catalog: _table(catalog).maintenance.rotate("wrap", to_key="keyB"), BEFORE),
    "rotate data": DeletedOperation(
        lambda catalog: _table(catalog).maintenance.rotate("data", to_key="keyB"),
        (0, *range(3, 11)),
        before=(0, *range(3, 11)),
        properties={"write.delete.mode": "merge-on-read"},
    ),
    "rotate lists": DeletedOperation(
        lambda catalog: _table(catalog).maintenance.rotate("lists"),
        (0, *range(3, 11)),
        before=(0, *range(3, 11)),
        properties={"write.delete.mode": "merge-on-read"},
    ),
    "rotate all": DeletedOperation(
        lambda catalog: _table(catalog).maintenance.rotate("all"),
        (0, *range(3, 11)),
        before=(0, *range(3, 11)),
        properties={"write.delete.mode": "merge-on-read"},
    ),
    "convert": PlainOperation(_convert, tuple(range(19)), before=tuple(range(19))),
    "convert with history": PlainOperation(_convert_history, tuple(range(19)), before=tuple(range(19))),
    "convert a mixed table": MixedOperation(_convert_mixed, MIXED, before=MIXED),
    "convert a mixed table with history": MixedOperation(_convert_mixed_history, MIXED, before=MIXED),
    "convert with a progress file": PlainFilesOperation(_convert_again, PLAIN_FILES, before=PLAIN_FILES),
    "convert history with a progress file": PlainFilesOperation(_convert_history_again, PLAIN_FILES, before=PLAIN_FILES),
    "remove plain files": ConvertedOperation(_remove_plain, tuple(range(19)), before=tuple(range(19))),
    "expire replaced files": ReplacedOperation(_expire_files, (200, 201, 202), before=(200, 201, 202)),
}


class Restored:
    """A lake that is put back as it was prepared."""

    def __init__(self, folder: Path, operation: Operation) -> None:
        self._kept = folder / "kept"
        self._folder = folder / "lake"
        self._folder.mkdir(parents=True)
        self.lake = TestLake(self._folder)
        catalog = self.lake.catalog()
        catalog.create_namespace("db")
        catalog.close()
        operation.prepare(self.lake)
        shutil.copytree(self._folder, self._kept)

    def again(self) -> TestLake:
        shutil.rmtree(self._folder)
        shutil.copytree(self._kept, self._folder)
        return self.lake
