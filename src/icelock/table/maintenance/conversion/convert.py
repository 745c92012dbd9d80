"""``icelock.maintenance.convert``: a plain table becomes an encrypted one, under its own name, in one commit.

1. checks: what an encrypted table cannot have is refused before a byte is written;
2. rounds, beside writers: the data files of the current state are written again, encrypted
   (``table.maintenance.conversion.convert_files``). What others commit meanwhile is taken in by the next round;
3. the switch, in the table's turn: what is still missing, if it is little, then manifests, manifest list and metadata, and the commit.
   The metadata has one snapshot, of encrypted files only (``table.commit.conversion``); who began on the plain table is refused.

Killed before the switch, the table is plain as it was, and files that were written are left over; after it, it is encrypted. A commit that
certainly failed deletes what was written for it; one whose outcome is unknown deletes nothing. With a progress file, on a disk of the
caller's (``table.maintenance.conversion.kept_copies``), the next call takes the files that were finished, whatever ended this one.

The plain files stay, for readers that are at work and for a way back, until ``icelock.maintenance.remove_plain``.

With ``copy_to`` a new encrypted table is made instead. A mixed table, which is encrypted and has plain files, is converted in the same way:
all its files are written again (``table.maintenance.conversion.mixed``).

Not here: what may differ afterwards (``table.guard.conversion``), the plain files (``table.maintenance.removal.plain_files``), a copy
(``table.maintenance.conversion.convert_copy``).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, get_args

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.typedef import Identifier

from icelock import properties as names
from icelock.errors import CommitError, PolicyError
from icelock.format.encrypted_key import EncryptedKey
from icelock.io.file_io import storage_of
from icelock.io.listing import delete_files
from icelock.metadata.table_metadata import is_encrypted
from icelock.table.commit.conversion import check_refs, encrypted_properties, stage_converted, without_snapshots
from icelock.table.commit.protocol import DoubtfulConflictError, Stage, given_up, retries_of, retrying
from icelock.table.guard.plain_origin import PlainOrigin
from icelock.table.guard.rules import check_new_table
from icelock.table.maintenance.conversion.convert_copy import Copy
from icelock.table.maintenance.conversion.convert_files import Plan, WriteFiles, Written, bytes_of, checked, context_of, write_here
from icelock.table.maintenance.conversion.convert_history import History, KeptHistory
from icelock.table.maintenance.conversion.convert_result import Converted
from icelock.table.maintenance.conversion.kept_copies import KeptCopies
from icelock.table.maintenance.conversion.mixed import check_mixed
from icelock.table.maintenance.conversion.progress_file import progress_file as opened_progress
from icelock.table.maintenance.removal.plain_files import origin_of, plain_files
from icelock.table.plain import AnyTable, check_loaded
from icelock.table.table import Table

Progress = Callable[[int, int], None]
_ROUNDS: Final = 5
_IN_TURN_BYTES: Final = 32 << 20
_logger = logging.getLogger(__name__)


def convert(
    table: AnyTable,
    *,
    key_id: str,
    data_key_length: int | None = None,
    history: History = "drop",
    drop_refs: bool = False,
    copy_to: str | Identifier | None = None,
    copy_catalog: Any = None,
    progress_file: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    write: WriteFiles = write_here,
) -> Converted:
    """Make an encrypted table of a plain one of format version 1, 2 or 3, or of a mixed one, under its own name, beside writers.

    Name, uuid, location, schemas, specs, sort orders and properties stay; ``table`` is still the plain version afterwards, so load it
    again. Rows are written again under new keys, by this process, in the memory of a few open files.

    Args:
        table: a table of one of icelock's catalogs: plain, or encrypted with plain files, which the catalog's ``icelock.plaintext-files``
            has to allow.
        key_id: the master key; the catalog needs a KMS that has it.
        data_key_length: bytes of the keys: 16 (if left out), 24 or 32.
        history: ``"drop"``: the current state of the main branch is kept, and no older snapshot; ``"refs"``: the snapshots that branches
            and tags name; ``"keep"``: all. See ``table.maintenance.conversion.convert_history``.
        drop_refs: whether other branches and tags may go, if the history does.
        copy_to: make a new table of this name instead, with the rows of the main branch, and leave this one alone
            (``table.maintenance.conversion.convert_copy``).
        copy_catalog: one of icelock's catalogs, where that is made; the table's own catalog, if left out.
        progress_file: where finished files are kept for the next call, if this one is killed or fails: on a disk of this machine where
            writers of the table have no access. What is in it is encrypted under the master key. It goes when the table is converted.
        dry_run: only check, and say what would be done; the progress file is left alone.
        progress: told the bytes of data files that were read so far, and of all.
        write: who writes the rows; this process, if left out.

    Raises:
        PolicyError: the table is encrypted as a whole, or has what an encrypted one cannot have; or the progress file is another
            conversion's, or in use. Nothing was written.
        KeyUnavailableError: no KMS, or it does not have the key; likewise.
        FormatError, IntegrityError, OSError: a file cannot be read, or does not hold what its manifest says; the table is as it was.
        CommitFailedException: other writers were faster each time; likewise.
        CommitStateUnknownException: the catalog did not say what became of the switch; nothing was deleted.
        CommitError: the catalog did not keep what was committed; likewise.
        TableAlreadyExistsError, NoSuchNamespaceError: there is no room for the copy; nothing was written, or what was is deleted.
    """
    check_loaded(table)
    told = progress or (lambda _done, _all: None)
    if history not in get_args(History):
        raise PolicyError(f"history is {history!r}; it must be {', '.join(map(repr, get_args(History)))}")
    if history != "drop":
        _check_history(history, drop_refs=drop_refs, copied=copy_to is not None)
    if copy_to is not None and progress_file is not None:
        raise PolicyError("a progress file is for a table under its own name: a copy that was interrupted begins anew")
    if copy_to is not None:
        catalog: Any = copy_catalog or table.catalog
        newest: Any = table.catalog.load_table(table.name())
        copy = Copy(table=newest, to=copy_to, catalog=catalog, key_id=key_id, data_key_length=data_key_length, progress=told, write=write)
        return _copied(copy, dry_run=dry_run)
    if copy_catalog is not None:
        raise PolicyError("copy_catalog is where a copy is made: name the new table, too (copy_to)")
    conversion = _Conversion(table, key_id, data_key_length, history=history, drop_refs=drop_refs, progress=told, write=write)
    return conversion.plan() if dry_run else conversion.run(progress_file)


def _check_history(history: History, *, drop_refs: bool, copied: bool) -> None:
    """Refuse what does not go with a history that is kept, as a PolicyError that names it."""
    if drop_refs:
        raise PolicyError(
            f"history={history!r} keeps branches and tags, and drop_refs (--drop-refs) lets them go: leave one of the two out"
        )
    if copied:
        raise PolicyError(f"history={history!r} is for a table under its own name: a copy (copy_to, --copy-to) has no history")


def _copied(copy: Copy, *, dry_run: bool) -> Converted:
    """Make a copy of the newest version, or say what it would be."""
    transaction, plan = copy.begin(), Plan.of(copy.table)
    planned = Converted(
        key_id=copy.key_id,
        files=len(plan.tasks),
        bytes=plan.size,
        rounds=1,
        copied_to=".".join(transaction.staged.table.name()),
        dry_run=dry_run,
    )
    if dry_run:
        checked(transaction.staged.write_context(), transaction.staged.entropy)
        return planned
    files, made = copy.run(transaction, plan)
    return replace(
        planned,
        added_files=len(files),
        added_bytes=sum(file.file_size_in_bytes for file in files),
        snapshot_id=made.metadata.current_snapshot_id,
    )


class _Conversion:
    """One call of ``convert``."""

    def __init__(
        self,
        table: AnyTable,
        key_id: str,
        data_key_length: int | None,
        *,
        history: History,
        drop_refs: bool,
        progress: Progress,
        write: WriteFiles,
    ) -> None:
        self._table = table
        catalog: Any = table.catalog
        self._catalog = catalog  # an EncryptedCatalog
        self._key_id = key_id
        self._length = data_key_length
        self._drop_refs = drop_refs
        self._history = None if history == "drop" else KeptHistory(history)
        self._progress = progress
        if not hasattr(self._catalog, "commit_conversion"):
            raise PolicyError(
                f"table {self._name} is not of one of icelock's catalogs, which alone convert: load it by icelock.load_catalog"
            )
        self._written = Written(
            entropy=self._catalog.encryption.entropy, by=write if self._history is None else self._history.written_by(write)
        )
        self._keks: tuple[EncryptedKey, ...] = ()
        self._rounds = 0
        self._read = 0
        self._planned: tuple[str, Plan] | None = None  # the newest plan, and the metadata file of its version
        self._origin: PlainOrigin | None = None  # of the newest version
        self._mixed: str | None = None  # the metadata file of the newest version that was found to be mixed
        self._certain = True  # whether nothing of this call can be in the table

    @property
    def _name(self) -> str:
        return ".".join(self._table.name())

    def plan(self) -> Converted:
        """Return what would be done, after all checks that write nothing."""
        table = self._loaded()
        refs = self._check(table)
        context_of(self._transaction_of(table).staged, table.metadata)
        plan = self._plan_of(table)
        return Converted(
            key_id=self._key_id,
            files=len(plan.tasks),
            bytes=plan.size,
            snapshots=len(plan.snapshots),
            dropped_refs=refs,
            plain_files=plain_files(table.metadata, table.io),
            dry_run=True,
        )

    def run(self, progress_file: str | os.PathLike[str] | None) -> Converted:
        """Convert; errors are those of ``convert``."""
        table = self._loaded()
        if progress_file is None:
            return self._run(table)
        self._check(table)
        with opened_progress(progress_file, self._about(table), self._catalog.encryption) as file:
            self._written.kept = KeptCopies(file)
            return self._run(table)

    def _about(self, table: AnyTable) -> dict[str, str]:
        """Return what must be the same for a copy that an earlier call wrote."""
        return {
            "table-uuid": str(table.metadata.table_uuid),
            "location": table.metadata.location,
            "key-id": self._key_id,
            "data-key-length": str(names.data_key_length(self._properties(table))),
            "history": "drop" if self._history is None else self._history.which,
        }

    def _run(self, table: AnyTable) -> Converted:
        properties = table.metadata.properties
        retries = retries_of(properties, getattr(self._catalog, "commit_retries", retries_of({})))
        try:
            self._round(table)
            return retrying(properties, retries)(self._attempt)
        except BaseException as e:
            self._clean_up(e)
            if isinstance(e, CommitFailedException):
                raise given_up(e) from e.__cause__
            raise

    def _loaded(self) -> AnyTable:
        table: AnyTable = self._catalog.load_table(self._table.name())
        self._check_same(table)
        return table

    def _check_same(self, table: AnyTable) -> None:
        if table.metadata.table_uuid != self._table.metadata.table_uuid:
            raise CommitError(
                f"table {self._name} was dropped and created again meanwhile (uuid {self._table.metadata.table_uuid}, now "
                f"{table.metadata.table_uuid}): it is not converted"
            )

    def _check(self, table: AnyTable) -> tuple[str, ...]:
        """Check a version of the table; return the branches and tags that go."""
        if isinstance(table, Table) and is_encrypted(table.metadata) and self._mixed != table.metadata_location:
            check_mixed(table, key_id=self._key_id, data_key_length=self._length)
            self._mixed = table.metadata_location
        if self._catalog.pins.is_pinned_plain(table.name()):
            raise PolicyError(
                f"table {self._name}: {names.PINS_PREFIX}{self._name} says that it is plain, and an encrypted one would not be loaded: "
                "take the pin out of the catalog's properties, here and for all other clients"
            )
        self._catalog.check_converts(table)
        properties = self._properties(table)
        names.encryption_key_id(properties)
        check_new_table(properties, names.ENCRYPTED_VERSION, table=self._name)
        return () if self._history is not None else check_refs(table.metadata, table=self._name, drop_refs=self._drop_refs)

    def _properties(self, table: AnyTable) -> dict[str, str]:
        if self._origin is None or self._origin.location != table.metadata_location:
            self._origin = origin_of(table)
        return encrypted_properties(table.metadata, key_id=self._key_id, data_key_length=self._length, origin=self._origin)

    def _empty(self, table: AnyTable) -> Table:
        """Return the encrypted table that a version becomes, before its first snapshot."""
        metadata = without_snapshots(table.metadata, self._properties(table), location=table.metadata_location)
        io = storage_of(table.io)
        return Table(table.name(), metadata, table.metadata_location, io, self._catalog, encryption=self._catalog.encryption)

    def _transaction_of(self, table: AnyTable) -> Any:
        """Return a transaction of the encrypted table, with the KEK of this call."""
        transaction = self._empty(table).transaction()
        self._keks = transaction.staged.prepare_kek(self._keks)
        return transaction

    def _round(self, table: AnyTable) -> Plan:
        """Write what a version has and is not written yet; return its plan."""
        self._rounds += 1
        self._check(table)
        staged = self._transaction_of(table).staged
        context, plan = context_of(staged, table.metadata), self._plan_of(table)
        whole = self._read + bytes_of(self._written.missing(plan).values())

        def done(task: Any) -> None:
            self._read += task.file_size
            self._progress(self._read, whole)

        self._written.write(plan, context, done)
        if self._history is not None:
            self._history.add(staged, table, plan, self._written)
        return plan

    def _plan_of(self, table: AnyTable) -> Plan:
        """Return the plan of a version; manifests are read once for each, so mostly not in the turn."""
        if self._planned is None or self._planned[0] != table.metadata_location:
            self._planned = (table.metadata_location, Plan.of(table) if self._history is None else self._history.plan(table))
        return self._planned[1]

    def _attempt(self) -> Converted:
        """Take in what came meanwhile, and switch."""
        for number in range(_ROUNDS):
            table = self._switch_or_newer(last=number == _ROUNDS - 1)
            if isinstance(table, Converted):
                return table
            _logger.info("table %s: more was committed meanwhile than fits into the switch; it is written first", self._name)
            self._round(table)
        raise AssertionError  # the last round ends with the switch

    def _switch_or_newer(self, *, last: bool) -> Converted | AnyTable:
        """Switch in the table's turn; return the newer version instead if it brings too much to be written there."""
        with self._catalog.turn(self._table.name()) as turn:
            begun = time.monotonic()
            turn.stage = Stage.PREPARING
            if turn.location is None:
                raise NoSuchTableError(f"table {self._name} was dropped or renamed meanwhile: it is not converted")
            table: AnyTable = turn.load()
            self._check_same(table)
            refs = self._check(table)
            plan = self._plan_of(table)
            missing = self._written.missing(plan)
            if missing and not last and bytes_of(missing.values()) > _IN_TURN_BYTES:
                return table
            if missing or (self._history is not None and not self._history.has(plan)):
                plan = self._round(table)
            metadata, files = self._switch(turn, table, plan)
        turn_seconds = time.monotonic() - begun
        more = [] if self._history is None else self._history.superfluous(plan)
        delete_files(storage_of(table.io), [*self._written.superfluous(plan), *more])
        return Converted(
            key_id=self._key_id,
            files=len(plan.tasks),
            bytes=plan.size,
            added_files=len(files),
            added_bytes=sum(file.file_size_in_bytes for file in files),
            reused=len(self._written.reused.intersection(plan.tasks)),
            rounds=self._rounds,
            turn_seconds=turn_seconds,
            snapshot_id=metadata.current_snapshot_id,
            snapshots=len(plan.snapshots),
            dropped_refs=refs,
            plain_files=self._plain_files(table),
        )

    def _plain_files(self, table: AnyTable) -> tuple[str, ...]:
        """Return the plain files, once the table is encrypted: that some cannot be told changes nothing about that."""
        try:
            return plain_files(table.metadata, table.io)
        except Exception as e:  # noqa: BLE001 - the conversion is done
            _logger.warning("table %s is encrypted now, but what plain files it leaves cannot be told: %s", self._name, e)
            return ()

    def _switch(self, turn: Any, table: AnyTable, plan: Plan) -> tuple[Any, list[Any]]:
        """Commit; return the metadata and the files of the encrypted table."""
        transaction, files = self._transaction_of(table), self._written.of(plan)
        try:
            if self._history is None:
                stage_converted(transaction, files, table.metadata)
            else:
                transaction = self._history.staged(self._empty(table), table.metadata, plan, self._keks)
            self._certain = False
            empty, updates = transaction.staged.committed.metadata, transaction.staged.updates
            return self._catalog.commit_conversion(table, empty, updates), files
        except BaseException as e:
            refused = isinstance(e, CommitFailedException) and not isinstance(e, DoubtfulConflictError)
            if turn.stage is Stage.PREPARING or refused:
                self._certain = True
                transaction.staged.discard()
            raise

    def _clean_up(self, error: BaseException) -> None:
        """Delete what was written if it is certainly in no version of the table."""
        files = [*self._written.paths, *(() if self._history is None else self._history.paths)]
        lasting = frozenset(self._written.lasting)
        if not self._certain:
            error.add_note(f"The switch of table {self._name} may have been made; its {len(files)} files were left in place")
            return
        if lasting and self._written.kept is not None:
            files = [path for path in files if path not in lasting]
            error.add_note(f"{len(lasting)} finished files stay for the next call with progress file {self._written.kept.place}")
        if files:
            left = delete_files(storage_of(self._table.io), files)
            if left:
                error.add_note(f"these files could not be deleted and belong to no table: {', '.join(left)}")
