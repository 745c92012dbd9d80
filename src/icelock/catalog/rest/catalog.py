"""The REST catalog: encrypted tables on a server of the Iceberg REST protocol.

Also usable from PyIceberg itself: ``py-catalog-impl=icelock.catalog.rest.RestCatalog``. The server keeps metadata, and is trusted with it;
KMS settings are the client's alone (``catalog.rest.answer``). A server that loses keys is found out when a table is made: it is read
back after every create, register and commit. Scans are planned here: a server's plan has no keys. Views are PyIceberg's.

A gateway may send a request twice, so that it was done and is refused: the tables there are now decide. A drop that finds no table is
still an error: the table may have been renamed.

Not here: rules (``catalog.base``), commits (``catalog.rest.commit``), requests (``catalog.rest.requests``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Final
from uuid import UUID

from pyiceberg.catalog.rest import Capability, CreateTableRequest, TableResponse
from pyiceberg.catalog.rest.auth import AUTH_MANAGER
from pyiceberg.exceptions import (
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.io import FileIO
from pyiceberg.table import StagedTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier
from requests import HTTPError, RequestException

from icelock import properties as names
from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.commit.outcome import check_new, unanswered
from icelock.catalog.commit.store import Store, TableForm
from icelock.catalog.named import without_kms
from icelock.catalog.rest.answer import TableAnswer, best_credentials, end_of
from icelock.catalog.rest.commit import RestTurn
from icelock.catalog.rest.evidence import check_made
from icelock.catalog.rest.http import AnswerError, may_be_done, not_sent
from icelock.catalog.rest.requests import RestRequests
from icelock.catalog.rest.storage import Lent, VendedFileIO
from icelock.catalog.trust.kept import Kept
from icelock.errors import PolicyError
from icelock.io.storage import open_storage
from icelock.table.guard.rules import check_metadata
from icelock.table.guard.snapshots import check_kept
from icelock.table.table import Table

_REFUSALS = (RESTError, RequestException, NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError)


class RestCatalog(EncryptedCatalog, RestRequests):
    """PyIceberg's ``RestCatalog`` whose tables can be encrypted. Safe to share between threads."""

    _store: RestStore
    reads_metadata_files: ClassVar[bool] = False
    warehouse_is_place: ClassVar[bool] = False
    # Other processes cannot be kept out, so Java's four retries are too few.
    commit_retries: Final = 20

    def _make_store(self) -> RestStore:
        return RestStore(self)

    def supports_server_side_planning(self) -> bool:
        """Return False, whatever ``scan-planning-mode`` says: tables are planned here, and a server's plan has no keys."""
        return False

    def table_exists(self, identifier: str | Identifier) -> bool:
        """Whether a name has a table, as the server says; nothing is loaded."""
        return bool(self._iceberg.table_exists(identifier))

    def drop_table(self, identifier: str | Identifier, purge_requested: bool = False) -> None:
        """Drop a table; with ``purge_requested`` as ``purge_table``: a server that has no keys cannot find the files."""
        if purge_requested:
            self.purge_table(identifier)
            return
        super().drop_table(identifier)

    def purge_table(self, identifier: str | Identifier, *, drop_unreadable: bool = False) -> None:
        """Drop a table and delete its files: those of an encrypted one from here, with its keys; of another one the server does it.

        ``drop_unreadable``: as in other catalogs.

        Raises:
            KeyUnavailableError, IntegrityError: the manifests cannot be read, or the metadata file that the server names is not the
                table's; nothing was dropped or deleted.
            PolicyError: the table says ``gc.enabled=false``; the same.
            OSError: the table is gone, but the storage did not delete all of its files; names those that are left.
        """
        if isinstance(self.load_table(identifier), Table):
            super().purge_table(identifier, drop_unreadable=drop_unreadable)
            return
        self._drop(self._identifier_to_validated_tuple(identifier), purge=True)

    def _load_file_io(self, properties: Mapping[str, str] | None = None, location: str | None = None) -> FileIO:
        settings = without_kms(self.storage_settings(properties or {}))
        if self._auth_manager is not None:
            settings[AUTH_MANAGER] = self._auth_manager
        return open_storage(settings, location)

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> IcebergTable:
        # PyIceberg's answer to the creation of a plain table.
        del table_response
        self.pins.gone(identifier_tuple)  # there was no table of this name
        return self.load_table(identifier_tuple)

    def _response_to_staged_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> StagedTable:
        # PyIceberg's answer to the staging of a plain table, whose properties are the server's.
        self.encryption.check_locations(table_response.metadata.properties, table=".".join(identifier_tuple))
        return super()._response_to_staged_table(identifier_tuple, table_response)


class RestStore(Store[RestCatalog]):
    """The tables of a REST server."""

    def name_of(self, identifier: str | Identifier) -> Identifier:
        """Return a table's name in parts, two at least."""
        return self.catalog._identifier_to_validated_tuple(identifier)

    @contextmanager
    def exclusive(self, name: Identifier) -> Iterator[RestTurn]:
        """Load the table; nothing keeps other processes out."""
        try:
            answer = self._there(name)
        except (RequestException, RESTError) as e:
            if isinstance(e, AnswerError) or not (may_be_done(e) or not_sent(e)):
                raise  # another try would get the same
            raise unanswered("REST server", e) from e
        same_keks = self.catalog.encryption.same_keks
        yield RestTurn(self.catalog, name, answer, table_of=partial(self.table, name), same_keks=same_keks)

    replaces_snapshots = False

    def check_converts(self, name: Identifier) -> None:
        """Refuse: the protocol cannot say that a commit is made only if nobody has added a branch, whose plain snapshot would be left."""
        raise PolicyError(
            f"table {'.'.join(name)} is of a REST server, whose protocol has no commit that replaces all snapshots: it is not converted "
            "there in this version; make an encrypted copy of it (icelock convert --copy-to, copy_to)"
        )

    def load(self, name: Identifier) -> IcebergTable:
        """Load a table."""
        name = self.name_of(name)
        return self.table(name, self.catalog._ask_table(name))

    def table(self, name: Identifier, answer: TableAnswer) -> IcebergTable:
        """Return the table of an answer.

        Raises:
            IntegrityError, PolicyError: see ``table.guard.rules.check_metadata``.
        """
        metadata, location = answer.metadata, answer.location
        check_metadata(metadata, location=location)
        return self.catalog._table_with(name, metadata, location, self._storage(name, answer, location), dict(answer.config))

    def kept(self, name: Identifier) -> Kept:
        """Return what the server answers."""
        answer = self.catalog._ask_table(name)
        metadata = answer.metadata
        said = {
            "table-uuid": str(metadata.table_uuid),
            "current-snapshot-id": str(metadata.current_snapshot_id),
            "last-sequence-number": str(getattr(metadata, "last_sequence_number", 0)),
            names.ENCRYPTION_KEY_ID: str(metadata.properties.get(names.ENCRYPTION_KEY_ID)),
        }
        return Kept(location=answer.location, io=self._storage(name, answer, answer.location), where="the REST server", answer=said)

    def stage(self, name: Identifier, form: TableForm) -> StagedTable:
        """Let the server stage a new table, at the location that it chooses.

        Raises:
            CommitError, IntegrityError: the server would not make what was asked for; there is no table.
        """
        request = self._request(name, form, stage=True)
        answer = self.catalog._ask_create(name, request)
        check_new(answer.metadata, table=".".join(name), catalog=self.catalog.name)
        check_made(name, answer.metadata, form.properties, request, catalog=self.catalog.name)
        return self._staged(name, answer.metadata, answer, request)

    def stage_again(self, name: Identifier, metadata: Any) -> StagedTable:
        """Let the server stage the same table again: it lends access to the storage with that."""
        properties = {**metadata.properties, names.FORMAT_VERSION: str(metadata.format_version)}
        request = _creation(name, metadata, metadata.location, properties, stage=True)
        return self._staged(name, metadata, self.catalog._ask_create(name, request), request)

    def _staged(self, name: Identifier, metadata: Any, answer: TableAnswer, request: CreateTableRequest) -> StagedTable:
        catalog = self.catalog
        file = catalog.encryption.locations(metadata, table=".".join(name)).new_table_metadata_file_location()
        same = request.model_copy(update={"location": metadata.location})
        io = self._storage(name, answer, metadata.location, stage=partial(catalog._ask_create, name, same))
        return StagedTable(identifier=name, metadata=metadata, metadata_location=file, io=io, catalog=catalog)

    def create(self, name: Identifier, form: TableForm) -> IcebergTable:
        """Let the server make an empty table, and load it.

        Raises:
            CommitError: the table was made, but the server did not keep what makes it an encrypted one.
            IntegrityError: the table that was made has keys, snapshots or statistics (``catalog.commit.outcome``).
            TableAlreadyExistsError, NoSuchNamespaceError: nothing was made.
            CommitStateUnknownException: the server did not say whether the table was made.
        """
        request = self._request(name, form, stage=False)
        try:
            first = self.catalog._ask_create(name, request)
        except (RequestException, RESTError) as e:
            if not may_be_done(e):
                raise
            raise _unsure("made", name, e) from e
        check_new(first.metadata, table=".".join(name), catalog=self.catalog.name)
        pins, answer = self.catalog.pins, self.catalog._ask_table(name)
        self.check_empty(name, answer.metadata, first.location)
        check_made(name, answer.metadata, form.properties, request, catalog=self.catalog.name)
        made = self.table(name, answer)
        pins.check(name, answer.metadata, answer.location, pins.seen(name))
        return made

    def _request(self, name: Identifier, form: TableForm, *, stage: bool) -> CreateTableRequest:
        location = form.location
        first = self.catalog.new_metadata(
            schema=form.schema,
            location=location or "",
            partition_spec=form.partition_spec,
            sort_order=form.sort_order,
            properties=form.properties,
        )
        return _creation(name, first, location.rstrip("/") if location else None, form.properties, stage=stage)

    def register(self, staged: StagedTable) -> None:
        """Let the server add a table of a metadata file."""
        name, location = staged.name(), staged.metadata_location
        try:
            answer = self.catalog._ask_register(name, location)
        except _REFUSALS as e:
            self._settle("registered", name, e, lambda: self._has_file(name, location), doubtful=may_be_done(e))
        else:
            # Before it is loaded: that would refuse what is left of it, and not say that the server is no place for it.
            check_kept(staged.metadata, answer.metadata, table=".".join(name), catalog=self.catalog.name)

    def drop(self, name: Identifier, *, purge: bool = False) -> None:
        """Drop a table; with ``purge`` the server deletes its files."""
        try:
            self.iceberg.drop_table(name, purge)
        except (RESTError, RequestException) as e:
            if not may_be_done(e):
                raise
            self._settle("dropped", name, e, lambda: self._uuid(name) is None, doubtful=True)

    def rename(self, old: Identifier, new: Identifier) -> IcebergTable:
        """Rename a table."""
        old, new = self.name_of(old), self.name_of(new)
        uuid = self._uuid(old)
        try:
            return super().rename(old, new)
        except _REFUSALS as e:
            if uuid is None:
                raise
            doubtful = may_be_done(e) or _answers_a_look(e)
            self._settle("renamed", old, e, lambda: self._uuid(old) is None and self._uuid(new) == uuid, doubtful=doubtful)
            return self.catalog.load_table(new)

    def _settle(self, what: str, name: Identifier, error: Exception, done: Callable[[], bool], *, doubtful: bool) -> None:
        """Return if a request that ended with an error was ``done``.

        Raises:
            CommitStateUnknownException: the outcome is unknown; a ``doubtful`` error alone does not tell.
            Exception: the error.
        """
        try:
            if done():
                return
        except Exception as look:
            raise _unsure(what, name, error) from look
        if doubtful:
            raise _unsure(what, name, error) from error
        raise error

    def _there(self, name: Identifier) -> TableAnswer | None:
        """Return the table that has a name, None if none has."""
        try:
            return self.catalog._ask_table(name)
        except NoSuchTableError:
            return None

    def _has_file(self, name: Identifier, location: str) -> bool:
        there = self._there(name)
        return there is not None and there.location == location

    def _uuid(self, name: Identifier) -> UUID | None:
        there = self._there(name)
        return None if there is None else there.metadata.table_uuid

    def _storage(self, name: Identifier, answer: TableAnswer, place: str, *, stage: Callable[[], TableAnswer] | None = None) -> FileIO:
        """Return access to the storage at a place; ``stage`` asks for a table that the server may not have yet."""
        catalog, fixed = self.catalog, answer.config  # not the table's properties: metadata could send credentials elsewhere

        def lent(credentials: Mapping[str, str]) -> Lent:
            settings = {**fixed, **credentials}
            return Lent(io=catalog._load_file_io(settings, place), ends_ms=end_of(settings))

        def lend() -> Lent:
            try:
                return lent(catalog._store.credentials(name, place))
            except NoSuchTableError:
                if stage is None:
                    raise
                return lent(stage().storage_config(place))

        first = lent(best_credentials(answer.credentials, place))
        if first.ends_ms is None:
            return first.io
        return VendedFileIO(first, lend=lend, clock=catalog.encryption.clock)

    def credentials(self, name: Identifier, place: str) -> Mapping[str, str]:
        """Ask the server for credentials for a table's files at a place."""
        catalog = self.catalog
        if Capability.V1_LOAD_CREDENTIALS in catalog._supported_endpoints:
            answered = catalog._ask_credentials(name)
            if answered:
                return best_credentials(answered, place)
        return catalog._ask_table(name).storage_config(place)


def _creation(
    name: Identifier, first: TableMetadata, location: str | None, properties: Mapping[str, str], *, stage: bool
) -> CreateTableRequest:
    return CreateTableRequest(
        name=name[-1],
        location=location,
        table_schema=first.schema(),
        partition_spec=first.spec(),
        write_order=first.sort_order(),
        stage_create=stage,
        properties=dict(properties),
    )


def _answers_a_look(refusal: Exception) -> bool:
    """Whether an error is about the look at the new name, which PyIceberg takes when the server has said that it renamed."""
    cause = refusal.__cause__
    return isinstance(cause, HTTPError) and cause.response is not None and cause.response.request.method == "GET"


def _unsure(what: str, name: Identifier, cause: Exception) -> CommitStateUnknownException:
    return CommitStateUnknownException(
        f"the REST server did not say whether table {'.'.join(name)} was {what} ({type(cause).__name__}: {cause}): look before you repeat"
    )
