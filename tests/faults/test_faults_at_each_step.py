"""Storage, KMS and catalog fail at each step of an operation, in this process: an error, an answer that was lost, a partial write.

Whatever happens, the operation has succeeded or raised a clear error, the table is as before or as after, and files of a commit that
certainly failed are gone. When the fault is over, the same objects go on working.

Each kind of step fails every day, when it comes first; when it comes again, in turn (``tests.helpers.turns``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from sqlalchemy.exc import OperationalError

import icelock
from icelock.errors import IcelockError, KmsError, KmsErrorKind
from icelock.maintenance import leftovers
from icelock.metadata.table_metadata import is_encrypted
from tests.crash.operations import OPERATIONS, Operation, Restored
from tests.crash.steps import step_through_sql, stepping, watch
from tests.crash.test_killed_writers import check_leftovers, check_plain, ids
from tests.helpers.turns import todays

CLEAR: Final = (IcelockError, CommitFailedException, CommitStateUnknownException, OSError, OperationalError)
# The transaction has an append and a delete by copy-on-write.
NAMES: Final = (
    "delete, merge-on-read",
    "transaction",
    "create as select",
    "rewrite deletes and manifests",
    "expire replaced files",
    "rotate",
    "rotate data",
    "rotate lists",
    "rotate all",
    "convert",
    "convert with history",
    "remove plain files",
)
MAGIC: Final = (b"AGS1", b"PARE")
ASKED: Final = "SQL UPDATE", "SQL INSERT", "SQL COMMIT"


def error_of(moment: str, number: int) -> Exception:
    """Return what the thing at fault raises, in turn."""
    if "SQL" in moment:
        return OperationalError("injected", None, Exception("injected"))
    if " key" in moment:
        kms = KmsError("injected", kind=KmsErrorKind.UNAVAILABLE, key_id="keyA")
        return (kms, TimeoutError("injected"), RuntimeError("injected"))[number % 3]
    return (OSError("injected"), TimeoutError("injected"), ConnectionResetError("injected"))[number % 3]


class Kind(Enum):
    ERROR = "an error"
    CUT = "half of the file is there, and an error"
    LOST = "half of the file is there, and no error"


def kinds(moment: str) -> tuple[Kind, ...]:
    return tuple(Kind) if moment.startswith("after close ") else (Kind.ERROR,)


class Fault:
    """A hook that fails at one moment; ``moments`` are those that came."""

    def __init__(self, at: int, kind: Kind = Kind.ERROR) -> None:
        self._at = at
        self._kind = kind
        self.moments: list[str] = []

    def __call__(self, moment: str, location: str) -> None:
        self.moments.append(moment)
        if len(self.moments) - 1 != self._at:
            return
        # Threads may come in another order than in the undisturbed run: only what was just written is cut.
        kind = self._kind if moment.startswith("after close ") else Kind.ERROR
        if kind is not Kind.ERROR:
            path = Path(location.removeprefix("file://"))
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        if kind is not Kind.LOST:
            raise error_of(moment, self._at)


def run(restored: Restored, operation: Operation, fault: Callable[[str, str], None]) -> tuple[Any, Exception | None]:
    """Do the operation on a lake put back; return the catalog that did it, and what it raised."""
    catalog = step_through_sql(icelock.load_catalog("test", **stepping(restored.again().properties())))
    with watch(fault):
        try:
            operation.act(catalog)
        except Exception as e:  # noqa: BLE001 - looked at by the caller
            return catalog, e
    return catalog, None


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_at_each_step(tmp_path: Path, name: str) -> None:
    operation = OPERATIONS[name]
    restored = Restored(tmp_path, operation)
    undisturbed = Fault(-1)
    run(restored, operation, undisturbed)
    assert {"before create metadata.json", "after SQL COMMIT"} <= set(undisturbed.moments)
    for at, kind in chosen(name, undisturbed.moments):
        fault = Fault(at, kind)
        catalog, error = run(restored, operation, fault)
        where = f"{name}, {kind.value} at {at}, {undisturbed.moments[at]}: {error!r}"
        landed = "after SQL COMMIT" in fault.moments
        assert error is None or isinstance(error, CLEAR), where
        assert error is not None or landed, where
        asked = any(sql in one for sql in ASKED for one in fault.moments)
        check_table(restored, operation, landed=landed, clean=not asked, where=where)
        go_on(catalog, operation, landed=landed, where=where)


def chosen(name: str, moments: list[str]) -> list[tuple[int, Kind]]:
    """Return where an operation fails today, and how: at a quarter of its steps, and always beside the commit."""
    cases = [(at, kind) for at, moment in enumerate(moments) for kind in kinds(moment)]
    beside = [number for number, (at, _) in enumerate(cases) if moments[at] in {"after close metadata.json", "after SQL COMMIT"}]
    return todays(name, cases, 7, always=beside)


def check_table(restored: Restored, operation: Operation, *, landed: bool, clean: bool, where: str) -> None:
    """The table is as before or as after, and ``clean`` when the catalog was not asked: then no file is left."""
    expected = operation.after if landed else operation.before
    catalog = restored.lake.catalog()
    if expected is None:
        assert not catalog.table_exists(operation.table), where
    else:
        table = catalog.load_table(operation.table)
        assert ids(table) == expected, where
        if not is_encrypted(table.metadata):
            check_plain(table, where)
            assert not clean or [path for path, data in restored.lake.files().items() if data[:4] in MAGIC] == [], where
            catalog.close()
            return
        for snapshot in table.snapshots():
            table.scan(snapshot_id=snapshot.snapshot_id).count()
        if clean:
            assert [file.path for file in leftovers(table).files] == [], where
    catalog.close()


def go_on(catalog: Any, operation: Operation, *, landed: bool, where: str) -> None:
    """The catalog that met the fault does the operation when it is over."""
    if not landed:
        operation.act(catalog)
    table = catalog.load_table(operation.table)
    assert ids(table) == operation.after, where
    check_leftovers(table, where)
    catalog.close()


def test_slow_is_no_fault(tmp_path: Path) -> None:
    operation = OPERATIONS["append"]
    restored = Restored(tmp_path, operation)
    moments: list[str] = []

    def slow(moment: str, location: str) -> None:
        del location
        moments.append(moment)
        time.sleep(0.01)

    catalog, error = run(restored, operation, slow)
    assert error is None
    assert ids(catalog.load_table("db.t")) == operation.after
    assert len(moments) > 25
    catalog.close()
