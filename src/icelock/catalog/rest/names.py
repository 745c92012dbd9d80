"""Dropping, renaming and registering tables of a REST catalog, and finding out what became of it when the answer gets lost.

A gateway may send a request twice, so that it was done and is refused: what is there now decides. A drop that finds no table is an
error as ever: it may have been renamed.

Not here: commits (``catalog.rest.commit``), making tables (``catalog.rest.catalog``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyiceberg.exceptions import CommitStateUnknownException, NoSuchNamespaceError, NoSuchTableError, RESTError, TableAlreadyExistsError
from requests import HTTPError, RequestException

from icelock.catalog.rest.http import may_be_done
from icelock.catalog.rest.requests import RestRequests

if TYPE_CHECKING:
    from uuid import UUID

    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.typedef import Identifier

_DROPPED, _RENAMED, _REGISTERED = "dropped", "renamed", "registered"
_REFUSALS = (RESTError, RequestException, NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError)


class RestNames(RestRequests):
    """What ``catalog.rest.RestCatalog`` does with the names of tables."""

    def drop_table(self, identifier: str | Identifier, purge_requested: bool = False) -> None:
        """Drop a table.

        Raises:
            NoSuchTableError: as PyIceberg.
            CommitStateUnknownException: the server did not say whether it was dropped, and it is there.
        """
        try:
            super().drop_table(identifier, purge_requested)
        except (RESTError, RequestException) as e:
            name = self._identifier_to_validated_tuple(identifier)
            if not may_be_done(e):
                raise
            try:
                if self._uuid(name) is None:
                    return
            except Exception as look:
                raise _unsure(_DROPPED, name, e) from look
            raise _unsure(_DROPPED, name, e) from e

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> IcebergTable:
        """Rename a table.

        Raises:
            NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError: as PyIceberg; it has its old name.
            CommitStateUnknownException: the server did not say whether it was renamed, and what is there does not tell.
        """
        old, new = self._identifier_to_validated_tuple(from_identifier), self._identifier_to_validated_tuple(to_identifier)
        uuid = self._uuid(old)
        try:
            return cast("IcebergTable", super().rename_table(from_identifier, to_identifier))
        except _REFUSALS as e:
            if uuid is None:
                raise
            try:
                renamed = self._uuid(old) is None and self._uuid(new) == uuid
            except Exception as look:
                raise _unsure(_RENAMED, old, e) from look
            if renamed:
                return cast("IcebergTable", self.load_table(to_identifier))
            if may_be_done(e) or _answers_a_look(e):
                raise _unsure(_RENAMED, old, e) from e
            raise

    def _register(self, name: Identifier, location: str) -> None:
        """Make a table of a metadata file.

        Raises:
            TableAlreadyExistsError, NoSuchNamespaceError, RESTError: nothing was made.
            CommitStateUnknownException: the server did not say whether the table was made, and it is not there.
        """
        if self.table_exists(name):
            raise TableAlreadyExistsError(f"Table {'.'.join(name)} already exists")
        try:
            self._ask_register(name, location)
        except _REFUSALS as e:
            try:
                if self._ask_table(name).location == location:
                    return
            except NoSuchTableError:
                pass
            except Exception as look:
                raise _unsure(_REGISTERED, name, e) from look
            if may_be_done(e):
                raise _unsure(_REGISTERED, name, e) from e
            raise

    def _uuid(self, name: Identifier) -> UUID | None:
        """Return the id of the table that has a name, None if none has."""
        try:
            return self._ask_table(name).metadata.table_uuid
        except NoSuchTableError:
            return None


def _answers_a_look(refusal: Exception) -> bool:
    """Whether an error is about the look at the new name, which PyIceberg takes when the server has said that it renamed."""
    cause = refusal.__cause__
    return isinstance(cause, HTTPError) and cause.response is not None and cause.response.request.method == "GET"


def _unsure(what: str, name: Identifier, cause: Exception) -> CommitStateUnknownException:
    msg = f"the REST server did not say whether table {'.'.join(name)} was {what} ({type(cause).__name__}: {cause}): look before you repeat"
    return CommitStateUnknownException(msg)
