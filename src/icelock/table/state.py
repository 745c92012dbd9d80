"""What the steps of a commit and maintenance need of tables: so they do not import them.

``Version`` is read, and ``OpenTable`` goes from one version to the next.
"""

# ruff: noqa: D102 - described where they are made

from __future__ import annotations

from typing import Any, Protocol, Self

from pyiceberg.io import FileIO
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import Transaction
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier

from icelock.format.encrypted_key import EncryptedKey
from icelock.io.file_io import EncryptingFileIO
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.table.encryption import TableEncryption


class Version(Protocol):
    """One version of a table: its metadata, and storage access with that metadata's keys."""

    @property
    def metadata(self) -> TableMetadataV3: ...
    @property
    def io(self) -> EncryptingFileIO: ...


class OpenTable(Version, Protocol):
    """A table of a catalog, at one version. ``storage`` has no keys."""

    storage: FileIO
    encryption: TableEncryption
    catalog: Any
    is_new: bool

    @property
    def metadata_location(self) -> str: ...
    def name(self) -> Identifier: ...
    def location(self) -> str: ...
    def io_for(self, metadata: TableMetadata, *, unused_keks: tuple[EncryptedKey, ...] = ()) -> EncryptingFileIO: ...
    def location_provider(self) -> LocationProvider: ...
    def at_one_version(self) -> Self: ...
    def transaction(self) -> Transaction: ...
    def follow(self, fresh: IcebergTable) -> None: ...
    def refresh(self) -> Self: ...
    def advance(self, other: Self) -> None: ...
    def _do_commit(self, updates: tuple[Any, ...], requirements: tuple[Any, ...]) -> None: ...
