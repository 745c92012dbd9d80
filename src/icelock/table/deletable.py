"""Which files may be deleted on whose word: metadata.json, which is plain, or lists and manifests that authenticate.

Whoever can write metadata.json can name any file in it, in its logs, statistics, snapshots or as the table's location. So what it names is
deleted only where the metadata file itself lies, which the catalog says, not the file: in its folder, or below the folder above
``metadata/`` and below the table's location as well. What encrypted lists and manifests name was written by someone with the table's
keys, and is deleted wherever it lies, as Java does: ``write.data.path`` may be elsewhere. What may not be deleted is left and logged.

Source: Java ``CatalogUtil.dropTableData`` and ``deleteRemovedMetadataFiles`` for what is deleted; they believe every location.
Not here: deleting (``io.listing``), what is no longer needed (``table.expire``, ``maintenance.leftovers``).
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from icelock.io.locations import lies_below, place_of
from icelock.table.reach import metadata_paths, read_lists, read_paths, statistics_paths

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table.metadata import TableMetadata

logger = logging.getLogger(__name__)

_METADATA: Final = re.compile(r"[^/\\]+\.metadata\.json(\.gz)?")


class Home:
    """The folders in which files of a table are deleted because its metadata.json names them.

    Args:
        location: the table's, as the metadata has it.
        metadata_location: the file of the metadata, as the client came to know it.
    """

    def __init__(self, *, location: str, metadata_location: str) -> None:
        self._location = location
        self._file = place_of(metadata_location)
        self._folder = metadata_location.rpartition("/")[0]
        above, _, name = self._folder.rpartition("/")
        self._root = above if name == "metadata" else self._folder

    def owns(self, location: str) -> bool:
        """Whether a file is the table's own by where it lies."""
        if lies_below(location, self._folder):
            return True
        return lies_below(location, self._root) and lies_below(location, self._location)

    def owns_metadata(self, location: str) -> bool:
        """Whether a file is an older metadata file of the table by where it lies and by its name."""
        beside = lies_below(location, self._folder) and place_of(location).rpartition("/")[0] == place_of(self._folder)
        return beside and place_of(location) != self._file and _METADATA.fullmatch(location.rpartition("/")[2]) is not None

    def owned(self, locations: Iterable[str]) -> set[str]:
        """Return those that are the table's own; the others are logged, since they are left."""
        return self._kept(locations, {location for location in locations if self.owns(location)})

    def owned_metadata(self, locations: Iterable[str]) -> set[str]:
        """Return the older metadata files among them; the others are logged likewise."""
        return self._kept(locations, {location for location in locations if self.owns_metadata(location)})

    def _kept(self, locations: Iterable[str], owned: set[str]) -> set[str]:
        foreign = sorted(set(locations) - owned)
        if foreign:
            logger.warning(
                "%d files that %s names were not deleted, since they do not lie at the table: %s", len(foreign), self._file, foreign[:5]
            )
        return owned


def purgeable(metadata: TableMetadata, metadata_location: str, io: FileIO) -> set[str]:
    """Return every file of a table that may be deleted with it.

    Raises:
        KeyUnavailableError, IntegrityError, PolicyError, FormatError, OSError: a list or manifest cannot be read.
    """
    home = Home(location=metadata.location, metadata_location=metadata_location)
    keyed = [snapshot for snapshot in metadata.snapshots if getattr(snapshot, "key_id", None) is not None]
    plain = [snapshot for snapshot in metadata.snapshots if getattr(snapshot, "key_id", None) is None]
    listed, claimed = read_lists(keyed, io), read_lists(plain, io)
    older = metadata_paths(metadata, metadata_location) - {metadata_location}
    return {
        metadata_location,
        *home.owned_metadata(older),
        *home.owned({*statistics_paths(metadata), *(snapshot.manifest_list for snapshot in plain), *claimed}),
        *(snapshot.manifest_list for snapshot in keyed),
        *listed,
        *files_of(listed.values(), io, home, live_only=False),
        *home.owned(set(read_paths(claimed.values(), io, live_only=False))),
    }


def files_of(manifests: Iterable[ManifestFile], io: FileIO, home: Home, *, live_only: bool) -> set[str]:
    """Return the files of manifests that authenticated lists name; those of a plain manifest only at the table.

    Raises:
        IntegrityError, PolicyError, FormatError, OSError: a manifest cannot be read.
    """
    named = list(manifests)
    keyed = [manifest for manifest in named if manifest.key_metadata is not None]
    plain = [manifest for manifest in named if manifest.key_metadata is None]
    found = set(read_paths(keyed, io, live_only=live_only))
    return found | home.owned(set(read_paths(plain, io, live_only=live_only)) - found)
