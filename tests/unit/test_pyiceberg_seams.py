"""What icelock leans on in PyIceberg 0.12 beyond its documented API; a new version that moves a name fails here with it.

The private names are found in the sources (``pyiceberg_seams``) and recorded beside it; public names that PyIceberg documents for
nobody are listed by hand.
"""

from __future__ import annotations

import importlib
import inspect

import pytest

from tests.unit import pyiceberg_seams

UNDOCUMENTED = {
    # where: what icelock does with it
    "pyiceberg.avro.decoder.new_decoder": "reads manifests and manifest lists, block by block",
    "pyiceberg.avro.resolver.resolve_reader": "the same",
    "pyiceberg.expressions.visitors.InclusiveProjection.visit_bound_predicate": "overridden: values beyond the calendar",
    "pyiceberg.manifest.DATA_FILE_TYPE": "v3 fields of data files",
    "pyiceberg.manifest.MANIFEST_ENTRY_SCHEMAS": "v3 fields of entries",
    "pyiceberg.manifest.MANIFEST_LIST_FILE_SCHEMAS": "v3 fields of manifest-list rows",
    "pyiceberg.manifest.construct_partition_summaries": "field 507",
    "pyiceberg.table.snapshots.Snapshot.manifests": "overridden: the list is opened with the snapshot's key",
    "pyiceberg.table.ManifestGroupPlanner.plan_manifest_entries": "overridden: entries of data and delete manifests, pruned by partition",
    "pyiceberg.table.update.snapshot._ManifestMergeManager.merge_manifests": "which manifests are merged",
    "pyiceberg.table.update.snapshot._SnapshotProducer.new_manifest_writer": "overridden: encrypted manifests",
    "pyiceberg.table.update.snapshot.CommitWindow.is_empty": "the commits of others between two attempts",
}


@pytest.mark.parametrize("path", sorted(UNDOCUMENTED))
def test_undocumented_name_is_there(path: str) -> None:
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = inspect.getattr_static(found, name) if inspect.isclass(found) else getattr(found, name)
        return
    pytest.fail(f"{path} is gone; icelock used it: {UNDOCUMENTED[path]}")


def test_private_names_are_those_recorded() -> None:
    recorded = pyiceberg_seams.RECORDED.read_text(encoding="utf-8")
    found = pyiceberg_seams.text()
    gone = sorted(set(recorded.splitlines()) - set(found.splitlines()))
    new = sorted(set(found.splitlines()) - set(recorded.splitlines()))
    assert found == recorded, f"gone or moved: {gone}; new: {new}; if that is as it should be, run python -m tests.unit.pyiceberg_seams"


def test_the_search_finds_each_kind() -> None:
    """By hand, from the sources of PyIceberg 0.12: an import, an override, an inherited attribute."""
    found = {(seam.where, seam.name) for seam in pyiceberg_seams.all_seams()}
    assert ("pyiceberg.table.update", "_apply_table_update") in found
    assert ("pyiceberg.catalog.Catalog", "_delete_old_metadata") in found
    assert ("*", "_written_manifest_lists") in found


def test_producers_ask_for_io_and_uuid_by_these_names() -> None:
    from pyiceberg.table.update.snapshot import _SnapshotProducer  # noqa: PLC0415

    source = inspect.getsource(_SnapshotProducer)
    for name in (
        "self._io",
        "self.commit_uuid",
        "self._written_manifests",
        "self._written_manifest_lists",
        "self._target_branch",
        "self._uncommitted_manifests",
        "self._commit_window",
        "self._starting_snapshot_id",
        "self._isolation_operation",
        "self._predicate",
    ):
        assert name in source, name


def test_key_updates_are_dispatched() -> None:
    from pyiceberg.table.update import _apply_table_update  # noqa: PLC0415

    from icelock.metadata.updates import AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate  # noqa: PLC0415

    assert {AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate} <= set(_apply_table_update.registry)
