"""The v3 snapshot: PyIceberg's, plus the ``key-id`` of its manifest list and whatever unknown fields it came with.

``Snapshot.manifests(io)`` is PyIceberg's one seam through which planners, producers, inspection and validation reach a
manifest list (``pyiceberg/table/snapshots.py:245``); here it opens the list with the snapshot's key.

Not here: resolving the key (``keys.manager``) and the Avro rows (``metadata.manifest_list``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

from icelock.metadata.manifest_list import read_manifest_list

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from icelock.metadata.manifest import ManifestFile


class Snapshot(IcebergSnapshot):
    """A snapshot of a v3 table.

    ``key_id`` names the entry of the table's ``encryption-keys`` that holds the key metadata of the manifest list; None
    means that the list is plain (source: Iceberg spec, snapshots; format.md "v3 metadata").
    """

    model_config = ConfigDict(extra="allow")

    key_id: str | None = Field(alias="key-id", default=None)

    def manifests(self, io: FileIO) -> list[ManifestFile]:  # type: ignore[override]
        """Read the manifest list, decrypting it when the snapshot has a key id.

        Raises:
            KeyUnavailableError: the list is encrypted and ``io`` has no key manager, or the key cannot be had.
            IntegrityError: the list's bytes are not those that were written.
        """
        return read_manifest_list(io, location=self.manifest_list, key_id=self.key_id, snapshot_id=self.snapshot_id)

    def unknown_fields(self) -> dict[str, Any]:
        """Return fields of the JSON object that this version does not know."""
        return dict(self.__pydantic_extra__ or {})
