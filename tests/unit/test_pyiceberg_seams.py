"""Each private seam of PyIceberg 0.12 that icelock leans on; a new version that moves one fails here with its name."""

from __future__ import annotations

import importlib
import inspect

import pytest

SEAMS = {
    # where: what icelock does with it
    "pyiceberg.avro.decoder.new_decoder": "reads manifests and manifest lists, block by block",
    "pyiceberg.avro.resolver.resolve_reader": "the same",
    "pyiceberg.catalog.MetastoreCatalog._update_and_stage_table": "overridden: guard on what would be committed",
    "pyiceberg.catalog.MetastoreCatalog._write_metadata": "overridden: canonical metadata",
    "pyiceberg.catalog.Catalog._load_file_io": "overridden: KMS settings stay out of the storage's",
    "pyiceberg.catalog.Catalog._convert_schema_if_needed": "Arrow schemas at create",
    "pyiceberg.catalog.Catalog._delete_old_metadata": "called by Table._do_commit",
    "pyiceberg.catalog.sql.SqlCatalog._convert_orm_to_iceberg": "overridden: our metadata model",
    "pyiceberg.catalog.sql.SqlCatalog._create_table_row": "row of a new table",
    "pyiceberg.expressions.visitors._InclusiveMetricsEvaluationVisitor": "predicates that are not looked at for all files at once",
    "pyiceberg.expressions.visitors._StrictMetricsEvaluationVisitor": "subclassed: files all of whose rows match a filter",
    "pyiceberg.expressions.visitors.InclusiveProjection.visit_bound_predicate": "overridden: values beyond the calendar",
    "pyiceberg.manifest.DATA_FILE_TYPE": "v3 fields of data files",
    "pyiceberg.manifest.MANIFEST_ENTRY_SCHEMAS": "v3 fields of entries",
    "pyiceberg.manifest.MANIFEST_LIST_FILE_SCHEMAS": "v3 fields of manifest-list rows",
    "pyiceberg.manifest.construct_partition_summaries": "field 507",
    "pyiceberg.schema._SetFreshIDs._get_and_increment": "overridden: a column of a replaced table keeps its id",
    "pyiceberg.table.DataScan._manifest_planner": "overridden: plans with the schema of the scan",
    "pyiceberg.table.DataScan._plan_files_local": "planning is always local",
    "pyiceberg.table.IncrementalAppendScan._validate_and_resolve_snapshots": "the range of an incremental scan",
    "pyiceberg.table.Table._do_commit": "overridden: storage access gets the new keys",
    "pyiceberg.table.Transaction._rebuild_snapshot_updates": "replaced: snapshots in their places, key entries of a failed attempt dropped",
    "pyiceberg.table.Transaction._set_ref_snapshot": "overridden: a ref that moves keeps its settings",
    "pyiceberg.table.Transaction._stage": "overridden: guard, and a requirement for each ref",
    "pyiceberg.table.inspect.InspectTable._get_files_from_manifest": "overridden: no key metadata",
    "pyiceberg.table.inspect.InspectTable._generate_manifests_table": "overridden: no key metadata",
    "pyiceberg.table.snapshots.Snapshot.manifests": "overridden: the list is opened with the snapshot's key",
    "pyiceberg.table.update._TableMetadataUpdateContext": "updates are applied without a deep copy",
    "pyiceberg.table.update._update_table_metadata_log": "the metadata log of a commit",
    "pyiceberg.table.update._apply_table_update": "two key updates are registered",
    "pyiceberg.table.ManifestGroupPlanner._build_manifest_evaluator": "planning and conflicts: manifests that may concern a filter",
    "pyiceberg.table.ManifestGroupPlanner._check_sequence_number": "planning: manifests of deletes that are older than all data",
    "pyiceberg.table._min_sequence_number": "the same",
    "pyiceberg.table.ManifestGroupPlanner._build_partition_evaluator": "conflicts: files that may concern a filter",
    "pyiceberg.table.ManifestGroupPlanner._build_residual_evaluator": "overridden: no claims about nulls",
    "pyiceberg.table.ManifestGroupPlanner._build_metrics_evaluator": "overridden: delete files are not pruned by their metrics",
    "pyiceberg.table.ManifestGroupPlanner.plan_manifest_entries": "overridden: entries of data and delete manifests, pruned by partition",
    "pyiceberg.table.update.snapshot._FastAppendFiles": "subclassed",
    "pyiceberg.table.update.snapshot._MergeAppendFiles": "subclassed",
    "pyiceberg.table.update.snapshot._SnapshotProducer._build_manifest_evaluator": "manifests that may hold files to remove",
    "pyiceberg.table.update.snapshot._SnapshotProducer._existing_manifests": "which manifests of the parent are kept",
    "pyiceberg.table.update.snapshot._ManifestMergeManager._create_manifest": "overridden: encrypted manifests of both kinds",
    "pyiceberg.table.update.snapshot._ManifestMergeManager.merge_manifests": "which manifests are merged",
    "pyiceberg.table.update.snapshot._SnapshotProducer._refresh_for_retry": "overridden: state of the attempt before",
    "pyiceberg.table.update.snapshot._SnapshotProducer._validate_concurrency": "overridden: validation against encrypted manifests",
    "pyiceberg.table.update.snapshot.CommitWindow.is_empty": "the commits of others between two attempts",
    "pyiceberg.table.update.snapshot._SnapshotProducer._clean_all_uncommitted": "files of a failed commit",
    "pyiceberg.table.update.snapshot._SnapshotProducer._commit": "overridden: encrypted list, keys with the snapshot",
    "pyiceberg.table.update.snapshot._SnapshotProducer._manifests": "which manifests a snapshot has",
    "pyiceberg.table.update.snapshot._SnapshotProducer._summary": "overridden: no partition values",
    "pyiceberg.table.update.snapshot._SnapshotProducer.new_manifest_writer": "overridden: encrypted manifests",
}


@pytest.mark.parametrize("path", sorted(SEAMS))
def test_seam_is_there(path: str) -> None:
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = inspect.getattr_static(found, name) if inspect.isclass(found) else getattr(found, name)
        return
    pytest.fail(f"{path} is gone; icelock used it: {SEAMS[path]}")


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
