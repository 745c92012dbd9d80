"""What is invalid in a metadata file: contradictions between its parts, checked on the JSON before anything is used.

Java refuses the same in ``TableMetadata``'s constructor and the parsers below it (docs/reference/metadata-checks.md lists each with its
class), so a table that Java reads passes; so do logs that go back in time, which earlier versions of icelock wrote. Every catalog,
``StaticTable`` and ``register_table`` use this. For version 3, which icelock writes, counters below what they count are refused too: new
columns, partition fields or rows would get ids that are in use.

Not here: types of columns and specs (``metadata.schema_checks``), keys (``table.guard.snapshots``), JSON itself (``metadata.json_values``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Final

from icelock.errors import FormatError
from icelock.io.locations import asks_elsewhere, has_scheme, split_location
from icelock.metadata.json_values import INT, Fields
from icelock.metadata.schema_checks import check_names, check_schemas, check_sort_orders, check_specs
from icelock.properties import ENCRYPTED_VERSION

MAIN: Final = "main"
LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999; later times are invalid."""


def check_document(document: Mapping[str, Any], *, location: str) -> None:
    """Check a metadata file's JSON object of format version 1, 2 or 3.

    Args:
        document: the object.
        location: the file, by the name that the client trusts, or any text if there is no file yet.

    Raises:
        FormatError: says which field, what was expected and what was found.
    """
    top = Fields(document, "the metadata")
    version = top.integer("format-version", most=INT)
    check_names(top)
    table_location = top.text("location")
    if not table_location.rstrip("/") or "\0" in table_location:
        top.bad("location", table_location, "a location")
    top.integer("last-updated-ms", least=0, most=LAST_MS)
    if version > 1:
        top.text("table-uuid")
    for name, value in top.texts("properties").items():
        if "\0" in name or "\0" in value:
            top.bad(f"properties[{name!r}]", value, "text without NUL")
    check_schemas(top, version)
    check_specs(top, version)
    check_sort_orders(top, version)
    snapshots = _check_snapshots(top, version)
    _check_refs(top, snapshots)
    _check_lists(snapshots, table_location, location)
    _check_log(top, "snapshot-log")
    _check_log(top, "metadata-log")
    _check_statistics(top)
    if version == ENCRYPTED_VERSION:
        _check_row_ids(top, snapshots.values())
        _unique((entry.text("key-id") for entry in top.each("encryption-keys", "encryption key", default=())), "key-id of encryption-keys")


def _unique(values: Iterable[Hashable], what: str) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise FormatError(f"{what} {value!r} occurs twice")
        seen.add(value)


def _check_snapshots(top: Fields, version: int) -> dict[int, Fields]:
    """Check each snapshot (Java SnapshotParser, BaseSnapshot) and their numbers (Java TableMetadata.indexAndValidateSnapshots)."""
    last = top.integer("last-sequence-number", least=0) if version > 1 else 0
    schema_ids = {schema.get("schema-id") for schema in top.each("schemas", "schema", default=())}
    found: dict[int, Fields] = {}
    for snapshot in top.each("snapshots", "snapshot", default=()):
        check_names(snapshot)
        snapshot_id = snapshot.integer("snapshot-id")
        snapshot.what = f"snapshot {snapshot_id}"
        if snapshot_id in found:
            raise FormatError(f"snapshot-id {snapshot_id} occurs twice")
        found[snapshot_id] = snapshot
        number = snapshot.integer("sequence-number", least=0, default=0)
        if number > last:
            snapshot.bad("sequence-number", number, f"at most last-sequence-number, {last}")
        snapshot.integer("parent-snapshot-id", default=None)
        snapshot.integer("timestamp-ms", least=0, most=LAST_MS)
        snapshot.texts("summary")
        schema_id = snapshot.integer("schema-id", most=INT, default=None)
        if version == ENCRYPTED_VERSION and schema_id is not None and schema_id not in schema_ids:
            snapshot.bad("schema-id", schema_id, f"the id of one of the schemas, {sorted(schema_ids, key=str)}")
        snapshot.text("key-id", default=None)
    return found


def _check_refs(top: Fields, snapshots: Mapping[int, Fields]) -> None:
    """Check current snapshot, branches and tags (Java TableMetadata.validateRefs, validateCurrentSnapshot, SnapshotRef.Builder)."""
    current = top.integer("current-snapshot-id", default=-1)
    if current != -1 and current not in snapshots:
        top.bad("current-snapshot-id", current, "the id of one of the snapshots")
    if "refs" not in top.names():
        return
    refs = Fields(top.get("refs"), "refs")
    for name, value in refs.names().items():
        ref = Fields(value, f"ref {name!r}")
        check_names(ref)
        snapshot_id = ref.integer("snapshot-id")
        if snapshot_id not in snapshots:
            ref.bad("snapshot-id", snapshot_id, "the id of one of the snapshots")
        kind = ref.text("type").lower()
        if kind not in ("branch", "tag"):
            ref.bad("type", kind, "branch or tag")
        keep = ref.integer("min-snapshots-to-keep", least=1, most=INT, default=None)
        age = ref.integer("max-snapshot-age-ms", least=1, default=None)
        ref.integer("max-ref-age-ms", least=1, default=None)
        if kind == "tag" and (keep is not None or age is not None):
            raise FormatError(f"{ref.what} is a tag, which has no min-snapshots-to-keep or max-snapshot-age-ms")
        if name == MAIN and snapshot_id != current:
            raise FormatError(
                f"current-snapshot-id is {current}, but the branch main is at {snapshot_id}: the file was changed; restore it"
            )


def _check_lists(snapshots: Mapping[int, Fields], table_location: str, location: str) -> None:
    """Check that manifest lists are on the metadata file's storage: opening one contacts the host that its location names."""
    home = location if has_scheme(location) or location.startswith("/") else table_location
    spoken: set[tuple[str, str]] = set()
    for snapshot in snapshots.values():
        manifest_list = snapshot.text("manifest-list", default=None)
        if manifest_list is None:
            continue
        if not manifest_list or "\0" in manifest_list:
            snapshot.bad("manifest-list", manifest_list, "a location")
        parts = split_location(manifest_list)
        if (parts.scheme, parts.authority) in spoken:
            continue
        if asks_elsewhere(manifest_list, home, table_location):
            raise FormatError(
                f"{snapshot.what}: its manifest list {manifest_list} is on another storage than the metadata file, so it was not opened; "
                "restore the metadata file"
            )
        spoken.add((parts.scheme, parts.authority))


def _check_log(top: Fields, name: str) -> None:
    """Check the entries of a log. The next commit sorts one that goes back in time (``metadata.updates``)."""
    for entry in top.each(name, f"{name} entry", default=()):
        check_names(entry)
        if name == "metadata-log":
            entry.text("metadata-file")
        else:
            entry.integer("snapshot-id")
        entry.integer("timestamp-ms", least=0, most=LAST_MS)


def _check_statistics(top: Fields) -> None:
    """Check the entries of both kinds of statistics (Java StatisticsFileParser, PartitionStatisticsFileParser)."""
    for name, entry in _statistics(top):
        check_names(entry)
        entry.integer("snapshot-id")
        entry.text("statistics-path")
        entry.integer("file-size-in-bytes")
        if name == "statistics":
            entry.integer("file-footer-size-in-bytes")
            for blob in entry.each("blob-metadata", "blob"):
                check_names(blob)
                blob.text("type")
                blob.integer("snapshot-id")
                blob.integer("sequence-number")
                blob.list("fields")
                blob.texts("properties")


def _statistics(top: Fields) -> Iterator[tuple[str, Fields]]:
    for name in ("statistics", "partition-statistics"):
        for entry in top.each(name, f"{name} entry", default=()):
            yield name, entry


def _check_row_ids(top: Fields, snapshots: Iterable[Fields]) -> None:
    """Check row ids (Java TableMetadataParser, BaseSnapshot): there is a next one, and it is not below one that a snapshot took."""
    following = top.integer("next-row-id", least=0)
    for snapshot in snapshots:
        first = snapshot.integer("first-row-id", least=0, default=None)
        added = snapshot.integer("added-rows", least=0, default=None)
        if first is None:
            continue
        if added is None:
            snapshot.bad("added-rows", None, "a number, which first-row-id needs")
        if first + added > following:
            top.bad("next-row-id", following, f"at least {first + added}, the rows of {snapshot.what} included")
