"""Commits of catalogs that keep one thing of a table: which metadata file is its current one.

Order, all of it in the table's turn (``catalog.commit.queue``): 1 the current metadata; 2 the new one in memory, guarded; 3 its file;
4 the row is made to name it. Until 4 nothing has happened: whatever fails, the file is deleted and so are the commit's others. What
becomes of a failure in 4 is for the catalog to find out (``catalog.commit.outcome``).

Not here: rows (``catalog.hive.commit``, ``catalog.sql.commit``), the rules of encrypted tables (``catalog.base``).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import ICEBERG, METADATA_LOCATION, TABLE_TYPE, MetastoreCatalog
from pyiceberg.exceptions import NoSuchIcebergTableError, NoSuchPropertyException
from pyiceberg.serializers import Compressor
from pyiceberg.table import CommitTableResponse, StagedTable
from pyiceberg.utils.config import Config

from icelock.catalog.commit.outcome import delete_on_failure
from icelock.catalog.commit.queue import CommitQueues
from icelock.metadata.canonical_json import canonical_form
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.table.commit.protocol import CommitTurn, Stage
from icelock.table.kept import check_sealing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from pyiceberg.io import FileIO
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import Identifier

    from icelock.catalog.trust.metadata_cache import MetadataCache
    from icelock.catalog.trust.pins import Known, Pins


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataForm:
    """Metadata as text; ``metadata_hash`` is Java's, None for versions 1 and 2."""

    text: str
    metadata_hash: str | None

    @classmethod
    def of(cls, metadata: TableMetadata) -> MetadataForm:
        """Write metadata down, once for all that needs its text."""
        if isinstance(metadata, TableMetadataV3):
            text, digest = canonical_form(metadata)
            return cls(text=text, metadata_hash=digest)
        exclude_none = not Config().get_bool("legacy-current-snapshot-id")
        return cls(text=metadata.model_dump_json(exclude_none=exclude_none), metadata_hash=None)


class PointerTurn(CommitTurn):
    """A turn that can replace the row."""

    exclusive = True

    def __init__(self, location: str | None) -> None:
        super().__init__(location)
        self._check: Callable[[IcebergTable], None] | None = None

    def checking(self, check: Callable[[IcebergTable], None]) -> None:
        """Let the present table be looked at before anything is built on it."""
        self._check = check

    def load(self) -> IcebergTable:
        """Return the table of ``location``.

        Raises:
            IntegrityError: it is not the one that was committed, or goes back behind what was seen.
        """
        current = self.current()
        if self._check is not None:
            self._check(current)
        return current

    def current(self) -> IcebergTable:
        """Load the table of ``location``."""
        raise NotImplementedError

    def prepare(self, current: IcebergTable | None, staged: StagedTable, form: MetadataForm) -> None:
        """Make ready what ``swap`` needs, before the metadata file is written."""

    def confirm(self) -> None:
        """Check that the turn is still held, after the metadata file was written."""

    def swap(self, staged: StagedTable) -> None:
        """Make the row name the staged metadata file instead of ``location``.

        Raises:
            CommitFailedException: nothing was changed, and the metadata file is gone.
            CommitStateUnknownException: nobody knows.
        """
        raise NotImplementedError


class PointerCommits(MetastoreCatalog):
    """Mixin, before PyIceberg's catalog among the bases of one that keeps rows."""

    if TYPE_CHECKING:
        # Of EncryptedCatalog.
        _recent: MetadataCache
        pins: Pins

        def check_current(self, current: IcebergTable, known: Known) -> None:
            """See ``PinnedTables``."""

        def _exclusive(self, identifier: Identifier) -> AbstractContextManager[PointerTurn]:
            """Take the catalog's lock on a table."""

    def __init__(self, name: str, **properties: str) -> None:
        self._turns = CommitQueues()
        super().__init__(name, **properties)

    @contextmanager
    def turn(self, identifier: Identifier) -> Iterator[CommitTurn]:
        """Wait for the turn to commit to a table and hold it inside; a thread that holds it gets it again.

        Raises:
            CommitFailedException: the catalog gave no lock; nothing was changed.
        """
        held = self._turns.held(identifier)
        if held is not None:
            yield held
            return
        with self._turns.queue(identifier):
            known = self.pins.seen(identifier)  # before the row is read: others go on meanwhile
            with self._exclusive(identifier) as turn, self._turns.holding(identifier, turn):
                turn.checking(partial(self.check_current, known=known))
                yield turn

    def commit_table(self, table: IcebergTable, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> CommitTableResponse:
        """Commit updates of a table in its turn.

        Raises:
            CommitFailedException: a requirement is not met, another client was first, or the catalog refused; nothing was changed.
            IntegrityError: see ``table.guard.check_sealing``; nothing was changed.
            CommitStateUnknownException: the catalog did not answer, and the row does not tell; nothing was deleted.
        """
        identifier = table.name()
        with self.turn(identifier) as turn:
            assert isinstance(turn, PointerTurn)  # noqa: S101 - made by _exclusive
            turn.stage = Stage.PREPARING
            current = None if turn.location is None else turn.load()
            if current is not None:
                check_sealing(table.metadata, current.metadata, updates, table=".".join(identifier))
            staged = self._update_and_stage_table(current, identifier, requirements, updates)
            if current is not None and staged.metadata is current.metadata:
                return _response(current.metadata, current.metadata_location)
            form = MetadataForm.of(staged.metadata)
            with delete_on_failure(staged):
                turn.prepare(current, staged, form)
                written = self._write_form(form, staged.io, staged.metadata_location)
                self._recent.put(sha256(written).digest(), staged.metadata, metadata_hash=form.metadata_hash)
                turn.confirm()
            turn.stage = Stage.ASKED
            turn.swap(staged)
        return _response(staged.metadata, staged.metadata_location)

    @staticmethod
    def _write_form(form: MetadataForm, io: FileIO, location: str) -> bytes:
        data: bytes = Compressor.get_compressor(location).bytes_compressor()(form.text.encode())
        with io.new_output(location).create() as stream:
            stream.write(data)
        found = len(io.new_input(location))
        if found != len(data):
            raise OSError(f"{location} has {found} bytes on storage, {len(data)} were written: the storage lost some; nothing was changed")
        return data


def _response(metadata: TableMetadata, location: str) -> CommitTableResponse:
    # Both were checked when they were made.
    return CommitTableResponse.model_construct(metadata=metadata, metadata_location=location)


def named_metadata(parameters: Mapping[str, str] | None, *, table: str, where: str) -> str:
    """Return the metadata file that the parameters of an Iceberg table's row name; ``where`` the row is kept is for messages.

    Raises:
        NoSuchIcebergTableError, NoSuchPropertyException: it is no Iceberg table's row, or names none.
    """
    known = parameters or {}
    kind = known.get(TABLE_TYPE)
    if kind is None or kind.lower() != ICEBERG:
        raise NoSuchIcebergTableError(f"{table} in {where} is no Iceberg table: its {TABLE_TYPE} is {kind!r}")
    if not known.get(METADATA_LOCATION):
        raise NoSuchPropertyException(f"table {table} has no {METADATA_LOCATION} in {where}")
    return str(known[METADATA_LOCATION])
