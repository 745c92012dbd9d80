"""Names that modules had before they moved into folders (docs/adr/0015): importing one gives the module that has another name now.

It says so with a DeprecationWarning. Names that packages have now are not here. To go with version 0.2.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.util import spec_from_loader
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

# From a package to a folder, under the same name.
_FOLDERS: Final = (
    ("metadata", "plan", "manifest_columns"),
    ("arrow", "metadata", "column_names metadata_columns"),
    ("table", "plan", "delete_index metrics_mask partition_filter partition_set planner whole_files"),
    (
        "arrow",
        "arrow.read",
        "avro_rows avro_types deletes equality file_schema parquet_rows project prune row_filter stored_file",
    ),
    ("arrow", "arrow.write", "avro_schema avro_values bounds casts conform data_file dictionary fanout metrics"),
    ("arrow", "arrow.write", "partition partition_path partition_writer sizes sort"),
    ("catalog", "catalog.commit", "outcome"),
    ("catalog", "catalog.trust", "facts pins pins_file"),
    (
        "table",
        "table.commit",
        "branches conflicts producer row_delta summary",
    ),
    ("table", "table.rows", "delete source_rows upsert"),
    ("table", "table.maintenance", "deletable expire retention"),
    ("spark", "spark.driver", "commit distribution new_table source target"),
    ("spark", "spark.task", "splits write"),
    ("spark", "spark.jvm", "callbacks"),
    ("spark", "spark.sealed", "job messages seen ticket"),
    ("spark", "spark.columns", "batches conditions filters projection types"),
    ("spark", "spark.settings", "options"),
)
_RENAMED: Final = {
    "arrow.arrow_types": "arrow.types",
    "arrow.avro_write": "arrow.write.avro_file",
    "arrow.batches": "arrow.read.stored_file",
    "arrow.closed_file": "io.stored",
    "arrow.delete_cache": "arrow.read.context",
    "arrow.exact_filter": "plan.filters.exact",
    "arrow.filter_literals": "plan.filters.literals",
    "arrow.filter_text": "plan.filters.text",
    "arrow.metrics_config": "arrow.write.metrics",
    "arrow.parquet_writer": "arrow.write.parquet_file",
    "arrow.read.avro_rows": "arrow.read.stored_file",
    "arrow.read.batches": "arrow.read.stored_file",
    "arrow.read.delete_cache": "arrow.read.context",
    "arrow.read.equality": "arrow.read.deletes",
    "arrow.read.open_file": "arrow.read.stored_file",
    "arrow.read.parquet_rows": "arrow.read.stored_file",
    "arrow.read.seams": "arrow.read.prune",
    "arrow.seams": "arrow.read.prune",
    "arrow.write.avro_schema": "arrow.write.avro_file",
    "arrow.write.avro_values": "arrow.write.avro_file",
    "arrow.write.bounds": "arrow.write.metrics",
    "arrow.write.casts": "arrow.write.conform",
    "arrow.write.dictionary": "arrow.write.parquet_file",
    "arrow.write.given_rows": "arrow.write.conform",
    "arrow.write.metrics_modes": "arrow.write.metrics",
    "arrow.write.partition_path": "arrow.write.partition",
    "arrow.write.partition_writer": "arrow.write.fanout",
    "arrow.write.sizes": "arrow.nested",
    "arrow.write_context": "arrow.write.context",
    "arrow.write_options": "arrow.write.options",
    "arrow.write_schema": "arrow.write.schema",
    "catalog.asked": "catalog.commit.outcome",
    "catalog.commit.asked": "catalog.commit.outcome",
    "catalog.commit.missing": "catalog.commit.outcome",
    "catalog.glue.commit": "catalog.glue.catalog",
    "catalog.glue.store": "catalog.glue.catalog",
    "catalog.glue_commit": "catalog.glue.catalog",
    "catalog.hive.commit": "catalog.hive.catalog",
    "catalog.hive.store": "catalog.hive.catalog",
    "catalog.hive_client": "catalog.hive.client",
    "catalog.hive_commit": "catalog.hive.catalog",
    "catalog.hive_lock": "catalog.hive.lock",
    "catalog.hive_parameters": "catalog.hive.parameters",
    "catalog.pins_tables": "catalog.named",
    "catalog.places": "catalog.named",
    "catalog.pointer_commit": "catalog.commit.pointer",
    "catalog.recent": "catalog.trust.metadata_cache",
    "catalog.rest.form": "catalog.rest.evidence",
    "catalog.rest.made": "catalog.rest.evidence",
    "catalog.rest.names": "catalog.rest.catalog",
    "catalog.rest.refusals": "catalog.rest.evidence",
    "catalog.rest.store": "catalog.rest.catalog",
    "catalog.rest.tokens": "catalog.rest.requests",
    "catalog.rest_answer": "catalog.rest.answer",
    "catalog.rest_commit": "catalog.rest.commit",
    "catalog.rest_form": "catalog.rest.evidence",
    "catalog.rest_http": "catalog.rest.http",
    "catalog.rest_made": "catalog.rest.evidence",
    "catalog.rest_names": "catalog.rest.catalog",
    "catalog.rest_requests": "catalog.rest.requests",
    "catalog.rest_settings": "catalog.rest.settings",
    "catalog.rest_storage": "catalog.rest.storage",
    "catalog.rest_tokens": "catalog.rest.requests",
    "catalog.sql.commit": "catalog.sql.catalog",
    "catalog.sql.store": "catalog.sql.catalog",
    "catalog.sql_commit": "catalog.sql.catalog",
    "catalog.sql_facts": "catalog.sql.facts",
    "catalog.trust.dropped": "catalog.named",
    "catalog.trust.new_made": "catalog.commit.outcome",
    "catalog.trust.pins_tables": "catalog.named",
    "catalog.trust.recent": "catalog.trust.metadata_cache",
    "catalog.turn": "catalog.commit.queue",
    "io.avro_check": "io.avro.check",
    "io.avro_columns": "io.avro.columns",
    "io.avro_write": "io.avro.write",
    "io.given_location": "io.locations",
    "io.puffin_write": "io.puffin.write",
    "io.regular": "io.storage",
    "keys.cache": "keys.kek",
    "kms.pkcs12": "kms.keystore",
    "metadata.checked_avro": "metadata.entry_reader",
    "metadata.column_names": "metadata.schema_paths",
    "metadata.commit_time": "metadata.updates",
    "metadata.dropped_sources": "metadata.table_metadata",
    "metadata.entry_rules": "metadata.manifest",
    "metadata.given": "metadata.json_values",
    "metadata.partition_identity": "plan.partition_set",
    "metadata.plan": "plan.task",
    "metadata.snapshot": "metadata.table_metadata",
    "plan.delete_files": "plan.delete_index",
    "plan.filters.hints": "plan.filters.text",
    "spark.column_paths": "spark.columns.types",
    "spark.columns.paths": "spark.columns.types",
    "spark.cut": "spark.task.row_rewrite",
    "spark.cut_planning": "spark.driver.plan_read",
    "spark.driver.plan_cut": "spark.driver.plan_read",
    "spark.driver.plan_job": "spark.driver.plan_read",
    "spark.driver.plan_rewrite": "spark.driver.plan_read",
    "spark.driver.rows_seen": "spark.driver.run_jobs",
    "spark.driver.snapshot": "spark.driver.commit",
    "spark.driver_write": "spark.driver.write_here",
    "spark.errors_of_jvm": "spark.jvm.errors",
    "spark.job_planning": "spark.driver.plan_read",
    "spark.jobs": "spark.driver.run_jobs",
    "spark.native_columns": "spark.native.columns",
    "spark.native_equality": "spark.native.equality",
    "spark.native_filters": "spark.native.filters",
    "spark.native_jvm": "spark.jvm.native",
    "spark.native_plan": "spark.native.plan",
    "spark.planning": "spark.driver.plan_read",
    "spark.rows": "spark.change_rows",
    "spark.settings.storage": "spark.settings.catalogs",
    "spark.sealed.staged": "spark.sealed.job",
    "spark.snapshots": "spark.driver.commit",
    "spark.spark_transforms": "spark.columns.transforms",
    "spark.staged": "spark.sealed.job",
    "spark.storage": "spark.settings.catalogs",
    "spark.tables": "spark.settings.catalogs",
    "spark.task.cut": "spark.task.row_rewrite",
    "spark.task_read": "spark.task.read",
    "spark.wire": "spark.settings.rpc",
    "spark.write_planning": "spark.driver.plan_write",
    "table.add_files": "table.rows.plain_files",
    "table.columnar_plan": "plan.columnar",
    "table.commit.manifest_merge": "table.commit.producer",
    "table.commit.new_files": "table.commit.staged",
    "table.commit.replace_partitions": "table.commit.row_delta",
    "table.commit.retry": "table.commit.protocol",
    "table.commit.staging": "table.commit.staged",
    "table.commit.still_fits": "table.commit.conflicts",
    "table.commit.turn": "table.commit.protocol",
    "table.commit.update_snapshot": "table.data_file_transaction",
    "table.cut_files": "table.rows.file_rewrite",
    "table.delete_files": "plan.delete_index",
    "table.given_files": "table.data_file_transaction",
    "table.incremental": "table.scan",
    "table.kept": "table.snapshot_guard",
    "table.key_index": "arrow.row_numbers",
    "table.maintenance.reach": "table.maintenance.deletable",
    "table.maintenance.reachable_files": "table.maintenance.deletable",
    "table.manifest_merge": "table.commit.producer",
    "table.new_files": "table.commit.staged",
    "table.partition_overwrite": "table.commit.row_delta",
    "table.reach": "table.maintenance.deletable",
    "table.replacement": "table.new_table",
    "table.retry": "table.commit.protocol",
    "table.row_compare": "table.rows.source_rows",
    "table.rows.engine_change": "table.rows.file_rewrite",
    "table.rows.file_work": "table.rows.file_rewrite",
    "table.rows.given_change": "table.rows.file_rewrite",
    "table.rows.key_index": "arrow.row_numbers",
    "table.rows.row_compare": "table.rows.source_rows",
    "table.rows.vector_file": "table.rows.file_rewrite",
    "table.rows_changed": "table.rows.file_rewrite",
    "table.staging": "table.commit.staged",
    "table.still_fits": "table.commit.conflicts",
    "table.turn": "table.commit.protocol",
    "table.update_snapshot": "table.data_file_transaction",
    "table.vector_file": "table.rows.file_rewrite",
}
_NOW: Final = {
    **{f"{package}.{name}": f"{folder}.{name}" for package, folder, found in _FOLDERS for name in found.split()},
    **_RENAMED,
}
MOVED: Final = {f"icelock.{old}": f"icelock.{_NOW.get(new, new)}" for old, new in _NOW.items()}  # what moved twice, too


class _Moved(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        del path, target
        return spec_from_loader(fullname, self) if fullname in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        now = MOVED[module.__name__]
        warnings.warn(f"{module.__name__} is {now} now", DeprecationWarning, stacklevel=2)
        sys.modules[module.__name__] = import_module(now)  # which importlib then takes


def install() -> None:
    """Let imports find modules by the names that they had. Calling it again changes nothing."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())
