"""A writer that is killed at any of its steps: the table is as before or as after, and what is left is listed by one call."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from icelock.maintenance import leftovers, remove_leftovers, remove_plain
from icelock.metadata.table_metadata import is_encrypted
from icelock.table.maintenance.conversion.mixed import is_mixed
from tests.crash.operations import OPERATIONS, Operation, Restored, has_plain_files
from tests.crash.server import Server
from tests.crash.steps import stepping
from tests.helpers.counting_kms import KEYS
from tests.helpers.turns import in_turn
from tests.lakes.sqlite import TestLake, people
from tests.verify.verify_table import verify

COMMITTED = "after SQL COMMIT"
NEVER = 1_000_000
# Nothing changes between the end of a step and the beginning of the next one, so one of the two moments is enough; only a file's closing
# has more before it than the step before left, the second half of what is written.
MOMENTS = "^after |^halfway |^before close "


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


# A create as select and an append that merges manifests have the steps of a create and an append; conversions that go on have a test of
# their own (``test_killed_conversion``).
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in {"create", "append"} and "progress file" not in name])
def test_a_writer_killed_at_any_step(server: Server, tmp_path: Path, name: str) -> None:
    """One of five steps a day, and always the two beside the commit; all of them with ``ICELOCK_SWEEPS=all``."""
    operation = OPERATIONS[name]
    restored = Restored(tmp_path, operation)
    code, every_step = server.run(name, stepping(restored.lake.properties(**operation.settings)), NEVER, only=MOMENTS)
    assert code == 0
    check(restored.lake, operation, landed=True, where=name)
    commit = every_step.index(COMMITTED)
    for at in in_turn(name, len(every_step), 7, always=(commit - 1, commit)):
        lake = restored.again()
        code, steps = server.run(name, stepping(lake.properties(**operation.settings)), at, only=MOMENTS)
        where = f"{name}, killed at step {at}: {steps[-1] if steps else 'none'}"
        assert (code, len(steps)) == (-signal.SIGKILL, at + 1), where
        check(lake, operation, landed=COMMITTED in steps, where=where)
    # Steps on both sides of the commit, those of storage among them.
    assert commit > 1
    assert {"after create metadata.json", "before close metadata.json", "after close metadata.json", COMMITTED} <= set(every_step)


def check(lake: TestLake, operation: Operation, *, landed: bool, where: str) -> None:
    catalog = lake.catalog(**operation.settings)
    expected = operation.after if landed else operation.before
    if expected is None:
        assert not catalog.table_exists(operation.table), where
        operation.act(catalog)  # what was left is no obstacle
        expected = operation.after
    table = catalog.load_table(operation.table)
    assert ids(table) == expected, where
    if not is_encrypted(table.metadata):
        check_plain(table, where)
        operation.act(catalog)  # likewise; then what the first one wrote is left over
        table = catalog.load_table(operation.table)
        assert ids(table) == operation.after, where
    if operation.settings:
        table = check_mixed(catalog, operation, landed=landed, where=where)
    for snapshot in table.snapshots():
        table.scan(snapshot_id=snapshot.snapshot_id).count()
    check_leftovers(table, where)
    table.append(people(1000, 1))
    assert ids(catalog.load_table(operation.table)) == (*(expected or ()), 1000), where
    catalog.close()


def check_leftovers(table: Any, where: str) -> None:
    """What is listed is removed; then the independent reader finds every file it needs and no other."""
    root = Path(table.location())
    if has_plain_files(table):
        assert remove_plain(table).left == (), where
        assert not has_plain_files(table), where
    if where.startswith(("convert", "remove plain files")):
        files = [path for path in root.rglob("*") if path.is_file() and not path.name.endswith(".metadata.json")]
        assert {path.read_bytes()[:4] for path in files} <= {b"AGS1", b"PARE", b""}, where
    before = {str(path): path.stat().st_size for path in root.rglob("*") if path.is_file()}
    found = leftovers(table)
    assert found.keys == (), where
    assert {file.path: file.size for file in found.files} == {file.path: before[file.path] for file in found.files}, where
    assert remove_leftovers(table, older_than=timedelta(seconds=-60)).failed == ()
    after = {str(path) for path in root.rglob("*") if path.is_file()}
    assert set(before) - after == {file.path for file in found.files}, where
    metadata = json.loads(Path(table.metadata_location).read_text(encoding="utf-8"))
    named = {table.metadata_location, *(entry["metadata-file"] for entry in metadata["metadata-log"])}
    assert {path for path in after if path.endswith(".metadata.json")} == named, where
    assert verify(Path(table.metadata_location), {name: [key] for name, key in KEYS.items()})["unreached_files"] == 0, where


def check_mixed(catalog: Any, operation: Operation, *, landed: bool, where: str) -> Any:
    """A mixed table is as it was, and converted by a second call, or has plain files only to remove; return it as it is then."""
    table = catalog.load_table(operation.table)
    assert is_mixed(table) == (not has_plain_files(table)) == (not landed), where
    operation.act(catalog)
    table = catalog.load_table(operation.table)
    assert (ids(table), is_mixed(table), has_plain_files(table)) == (operation.after, False, True), where
    return table


def check_plain(table: Any, where: str) -> None:
    """A table that is still plain names nothing that is encrypted; all that it reaches is there."""
    assert table.metadata.format_version < 3, where
    assert not set(table.properties) & {"encryption.key-id", "icelock.converted-from", "icelock.removing-plain"}, where
    for snapshot in table.snapshots():
        assert table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows, where


def ids(table: Any) -> tuple[int, ...]:
    return tuple(sorted(table.scan().to_arrow().column("id").to_pylist()))
