"""Something is away from one step of an operation on, until after its end: the key service, or the storage for writers; then it is back.

One fault may be overcome where the next step works again; here nothing after it does, not even cleaning up. Whatever happens, the operation
has succeeded or raised a clear error, the table is as before or as after, every snapshot opens for who has the keys, and the same objects
go on to the end when the outage is over.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Final

import pytest

from icelock.catalog.sql.catalog import SqlCatalog
from icelock.errors import KeyUnavailableError, KmsError, KmsErrorKind, PolicyError
from icelock.metadata.table_metadata import is_encrypted
from tests.crash.operations import OPERATIONS, Operation, Restored
from tests.crash.test_killed_writers import check_plain, ids
from tests.faults.test_faults_at_each_step import CLEAR, Fault, run
from tests.helpers.turns import todays

NAMES: Final = (
    "rotate",
    "rotate data",
    "rotate lists",
    "rotate all",
    "convert",
    "convert with history",
    "convert with a progress file",
    "convert history with a progress file",
    "convert a mixed table",
    "remove plain files",
)


class Outage(Enum):
    """What is away; the moments at which that is noticed begin with ``before`` or ``halfway through`` and one of these words."""

    KMS_AWAY = "the key service does not answer", ("wrap", "unwrap")
    KMS_DENIES = "the key service denies", ("wrap", "unwrap")
    FULL = "the disk is full", ("create", "write", "close")
    READ_ONLY = "the storage is read-only", ("create", "write", "close", "delete")

    def is_noticed(self, moment: str) -> bool:
        words = moment.removeprefix("halfway through ").removeprefix("before ").split()
        return not moment.startswith("after ") and words[0] in self.value[1]

    def error(self) -> Exception:
        if self is Outage.KMS_AWAY:
            return TimeoutError("injected")  # which a client of the user's raises; it is not asked again, as by kms.retry
        if self is Outage.KMS_DENIES:
            return KmsError("injected", kind=KmsErrorKind.DENIED, key_id="keyA")
        number = errno.ENOSPC if self is Outage.FULL else errno.EROFS
        return OSError(number, os.strerror(number))


class FromThenOn:
    """A hook that fails at each moment that an outage shows at, from one of them on, until ``over``."""

    def __init__(self, outage: Outage, at: int) -> None:
        self._outage = outage
        self._left = at
        self.over = False
        self.moments: list[str] = []

    def __call__(self, moment: str, location: str) -> None:
        del location
        self.moments.append(moment)
        if self.over or not self._outage.is_noticed(moment):
            return
        self._left -= 1
        if self._left < 0:
            raise self._outage.error()


@pytest.mark.turns(3)
@pytest.mark.parametrize("outage", Outage)
@pytest.mark.parametrize("name", NAMES)
def test_an_outage_from_each_step_on(tmp_path: Path, name: str, outage: Outage) -> None:
    operation = OPERATIONS[name]
    restored = Restored(tmp_path, operation)
    undisturbed = Fault(-1)
    run(restored, operation, undisturbed)
    steps = [moment for moment in undisturbed.moments if outage.is_noticed(moment)]
    for at in todays(f"{name}, {outage.name}", range(len(steps)), 5):
        fault = FromThenOn(outage, at)
        catalog, error = run(restored, operation, fault)
        where = f"{name}, {outage.value[0]} from {at} of {len(steps)} on, {steps[at]}: {error!r}"
        assert error is None or isinstance(error, CLEAR), where
        assert error is not None or "after SQL COMMIT" in fault.moments, where
        assert outage.value[1][0] != "wrap" or error is None or isinstance(error, KeyUnavailableError) or is_audit(error), where
        check_rows(restored, operation, where)
        operation.act(catalog)
        assert ids(catalog.load_table(operation.table)) == operation.after, where
        catalog.close()
        check_rows(restored, operation, where)


@pytest.mark.parametrize("name", NAMES[:6])
def test_nobody_waits_for_a_slow_key_service(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never asked in a table's turn: where a call takes ten seconds, writers would wait for it."""
    operation = OPERATIONS[name]
    restored = Restored(tmp_path, operation)
    in_turn, asked, turns = 0, list[int](), 0
    turn = SqlCatalog.turn

    @contextmanager
    def counted(catalog: Any, *arguments: Any, **named: Any) -> Iterator[Any]:
        nonlocal in_turn, turns
        with turn(catalog, *arguments, **named) as found:
            in_turn, turns = in_turn + 1, turns + 1
            try:
                yield found
            finally:
                in_turn -= 1

    def hook(moment: str, location: str) -> None:
        del location
        if moment in {"before wrap key", "before unwrap key"}:
            asked.append(in_turn)

    monkeypatch.setattr(SqlCatalog, "turn", counted)
    catalog, error = run(restored, operation, hook)
    catalog.close()
    assert error is None
    assert (turns > 0, asked) == (True, [0] * len(asked))
    assert asked


def is_audit(error: Exception) -> bool:
    """Whether an audit says, of which other findings may be wanted, that it could not ask the KMS."""
    return isinstance(error, PolicyError) and "the audit could not look at everything" in str(error) and "KEK" in str(error)


def check_rows(restored: Restored, operation: Operation, where: str) -> None:
    """Another process, which nothing is away from, reads the table, and each of its snapshots."""
    catalog = restored.lake.catalog(**operation.settings)
    table = catalog.load_table(operation.table)
    assert ids(table) in (operation.before, operation.after), where
    if is_encrypted(table.metadata):
        for snapshot in table.snapshots():
            table.scan(snapshot_id=snapshot.snapshot_id).count()
    else:
        check_plain(table, where)
    catalog.close()
