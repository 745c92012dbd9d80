"""What the steps of a commit, changes of rows and maintenance need of tables and transactions: so they import neither.

``Version`` is read, ``OpenTable`` goes from one version to the next, and ``StagesFiles`` is what new files are written for.
"""

# ruff: noqa: D102 - described where they are made

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing import Self

    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table import Transaction
    from pyiceberg.table.locations import LocationProvider
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import Identifier

    from icelock.arrow.write.writer import WriteContext
    from icelock.format.encrypted_key import EncryptedKey
    from icelock.io.file_io import EncryptingFileIO
    from icelock.keys.entropy import Entropy
    from icelock.metadata.table_metadata import TableMetadataV3
    from icelock.table.encryption import TableEncryption
    from icelock.table.scan import DataScan


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
    def io_for(self, metadata: TableMetadata, *, unused_keks: tuple[EncryptedKey, ...] = ()) -> EncryptingFileIO: ...
    def location_provider(self) -> LocationProvider: ...
    def at_one_version(self) -> Self: ...
    def transaction(self) -> Transaction: ...
    def follow(self, fresh: IcebergTable) -> None: ...
    def refresh(self) -> Self: ...
    def advance(self, other: Self) -> None: ...
    def _do_commit(self, updates: tuple[Any, ...], requirements: tuple[Any, ...]) -> None: ...


class StagesFiles(Protocol):
    """The staged state of a transaction, for what writes files and snapshots into it (``table.commit.staged``)."""

    cannot_lose: bool

    @property
    def name(self) -> str: ...
    @property
    def committed(self) -> Version: ...
    @property
    def metadata(self) -> TableMetadataV3: ...
    @property
    def io(self) -> EncryptingFileIO: ...
    @property
    def locations(self) -> LocationProvider: ...
    @property
    def entropy(self) -> Entropy: ...
    @property
    def downcast_ns(self) -> bool: ...
    def now_ms(self) -> int: ...
    def write_context(self) -> WriteContext: ...
    def track(self, *locations: str) -> None: ...
    def catch_up(self) -> bool: ...
    def branch_scan(self, row_filter: BooleanExpression, *, case_sensitive: bool, branch: str | None) -> DataScan | None: ...
    def retention_of(self, ref_name: str) -> dict[str, int | None]: ...
