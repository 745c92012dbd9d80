"""The steps of ``table.maintenance.optimize``: what each finds in the table's own numbers, whether it is worth it, and the doing.

    compact            files that a compaction would rewrite, by its own plan
    rewrite-deletes    deleted rows as a part of all rows; delete files that are no vectors as a part of the data files
    rewrite-manifests  how many manifests less there would be, by its own plan
    expire             snapshots, branches, tags and keys that may expire by the table's settings
    leftovers          files that nothing reaches
    keys               the KEK in use: when it is due. Nothing is done: the first write after that makes a new one

Not here: order, time and results (``table.maintenance.optimize``), from when on (``table.maintenance.optimize_policy``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.manifest import DataFileContent, FileFormat

from icelock import properties as names
from icelock.keys.kek import KEK_LIFESPAN_MS, created_ms, is_live
from icelock.keys.key_entries import KeyEntries
from icelock.plan.delete_index import DeleteFileId, delete_file_id
from icelock.table.maintenance.optimize_policy import OptimizePolicy
from icelock.table.maintenance.removal.expire import GC_ENABLED, may_delete
from icelock.table.maintenance.removal.kinds import Kind
from icelock.table.maintenance.removal.leftovers import Leftovers, leftovers, remove_leftovers
from icelock.table.moments import span_text

if TYPE_CHECKING:
    from icelock.table.maintenance.maintenance_table import MaintenanceTable

_DAY_MS: Final = 86_400_000
_SOON_MS: Final = 30 * _DAY_MS
_THOUSAND: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a step found: in words; why it is to be done or not; and how much work it is, in the step's own unit."""

    found: str
    due: bool
    why: str
    work: int = 0
    into: str = ""


Look = Callable[["MaintenanceTable", OptimizePolicy], Finding]
Do = Callable[["MaintenanceTable", OptimizePolicy, Finding], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step. ``speed`` is its work in a second, as long as nothing was measured.

    ``rows``: it needs a snapshot; ``deletes``: it removes what older snapshots or other writers may have; ``searches``: the search is most
    of the work, so that it is not made before the work.
    """

    name: str
    look: Look
    do: Do | None
    speed: float = 1
    rows: bool = False
    deletes: bool = False
    searches: bool = False


def _look_compact(maintenance: MaintenanceTable, policy: OptimizePolicy) -> Finding:
    plan = maintenance.compact(sort_by=policy.sort_by, z_order_by=policy.z_order_by, options=policy.compact_options, dry_run=True)
    if not plan.rewritten_files:
        return Finding(found="no files to put together", due=False, why="data files are of the right size, or too few")
    return Finding(
        found=f"{plan.rewritten_files} data files of {size(plan.rewritten_bytes)} that would be {plan.added_files}",
        due=True,
        why="they are far from the target size, or have many deleted rows",
        work=plan.rewritten_bytes,
    )


def _compact(maintenance: MaintenanceTable, policy: OptimizePolicy, _finding: Finding) -> Any:
    return maintenance.compact(sort_by=policy.sort_by, z_order_by=policy.z_order_by, options=policy.compact_options)


def _look_deletes(maintenance: MaintenanceTable, policy: OptimizePolicy) -> Finding:
    table: Any = maintenance.tbl
    rows = files = touched = 0
    by_place: dict[DeleteFileId, Any] = {}
    for task in table.scan().plan_files():
        files += 1
        rows += task.file.record_count
        touched += task.file.file_size_in_bytes if task.delete_files else 0
        by_place.update({delete_file_id(delete): delete for delete in task.delete_files})
    deletes = list(by_place.values())
    deleted = sum(delete.record_count for delete in deletes if delete.content == DataFileContent.POSITION_DELETES)
    old = sum(delete.file_format != FileFormat.PUFFIN for delete in deletes)
    found = f"{deleted} of {rows} rows deleted by position, {old} delete files that are no vectors, {files} data files"
    if rows and deleted / rows >= policy.deleted_rows:
        why = f"at least {policy.deleted_rows:g} of the rows are deleted: they are taken out of the data"
        return Finding(found=found, due=True, why=why, work=touched, into="data")
    if files and old / files >= policy.delete_files:
        why = f"there are at least {policy.delete_files:g} delete files for a data file: they become vectors"
        return Finding(found=found, due=True, why=why, work=touched, into="vectors")
    return Finding(found=found, due=False, why="few rows are deleted, by few files")


def _rewrite_deletes(maintenance: MaintenanceTable, _policy: OptimizePolicy, finding: Finding) -> Any:
    return maintenance.rewrite_deletes(into="data" if finding.into == "data" else "vectors")


def _look_manifests(maintenance: MaintenanceTable, policy: OptimizePolicy) -> Finding:
    plan = maintenance.rewrite_manifests(dry_run=True)
    less = plan.replaced - plan.created
    if less < policy.min_manifests:
        found = f"{plan.replaced + plan.kept} manifests"
        return Finding(found=found, due=False, why=f"rewritten they would not be {policy.min_manifests} less")
    found = f"{plan.replaced + plan.kept} manifests, of which {plan.replaced} would be {plan.created}"
    return Finding(found=found, due=True, why="every scan reads them", work=plan.replaced)


def _rewrite_manifests(maintenance: MaintenanceTable, _policy: OptimizePolicy, _finding: Finding) -> Any:
    return maintenance.rewrite_manifests()


def _look_expire(maintenance: MaintenanceTable, _policy: OptimizePolicy) -> Finding:
    whole = len(maintenance.tbl.metadata.snapshots)
    if not may_delete(maintenance.tbl.metadata):
        return Finding(found=f"{whole} snapshots", due=False, why=f"{GC_ENABLED} is false")
    plan = maintenance.expire_snapshots().plan()
    found = f"{len(plan.snapshots)} of {whole} snapshots, {len(plan.refs)} branches and tags, and {len(plan.keys)} keys to expire"
    due = bool(plan.snapshots or plan.refs or plan.keys)
    why = "they are older than history.expire.* of the table keeps, or nothing needs them" if due else "none is old enough"
    return Finding(found=found, due=due, why=why, work=max(1, len(plan.snapshots)))


def _expire(maintenance: MaintenanceTable, _policy: OptimizePolicy, _finding: Finding) -> Any:
    return maintenance.expire_snapshots().commit()


def _look_leftovers(maintenance: MaintenanceTable, policy: OptimizePolicy) -> Finding:
    if not may_delete(maintenance.tbl.metadata):
        return Finding(found="not searched", due=False, why=f"{GC_ENABLED} is false")
    return after_search(leftovers(maintenance.tbl, older_than=policy.leftovers_age), policy)


def after_search(result: Leftovers, policy: OptimizePolicy) -> Finding:
    """Return what a search for leftovers found."""
    files = [file for file in (*result.files, *result.failed) if file.kind is not Kind.OTHER]
    return Finding(
        found=f"{len(files)} files of {size(sum(file.size for file in files))} that nothing reaches",
        due=bool(files),
        why=f"{'they are' if files else 'none is'} older than {span_text(policy.leftovers_age)}",
    )


def _remove_leftovers(maintenance: MaintenanceTable, policy: OptimizePolicy, _finding: Finding) -> Any:
    return remove_leftovers(maintenance.tbl, older_than=policy.leftovers_age)


def before_search(maintenance: MaintenanceTable) -> Finding:
    """Return what is known of leftovers before storage is listed: about how many files will be."""
    if not may_delete(maintenance.tbl.metadata):
        return Finding(found="not searched", due=False, why=f"{GC_ENABLED} is false")
    metadata = maintenance.tbl.metadata
    current = metadata.current_snapshot()
    summary = {} if current is None or current.summary is None else current.summary.additional_properties
    total = summary.get("total-data-files", "0")
    files = int(total) if names.is_number(total) else 0
    return Finding(found="", due=True, why="", work=files + 4 * len(metadata.snapshots) + 1)


def _look_keys(maintenance: MaintenanceTable, _policy: OptimizePolicy) -> Finding:
    metadata, now = maintenance.tbl.metadata, maintenance.tbl.encryption.clock()
    keks = list(KeyEntries(metadata.encryption_keys).keks(names.encryption_key_id(metadata.properties) or ""))
    live = [kek for kek in keks if is_live(kek, now)]
    if not live:
        found = f"{len(keks)} KEKs, of which new snapshots can use none"
        return Finding(found=found, due=False, why="the next write makes one, which needs the right to wrap and to unwrap")
    due = created_ms(max(live, key=created_ms)) + KEK_LIFESPAN_MS
    day = datetime.fromtimestamp(due // 1_000, tz=UTC).date().isoformat()
    found = f"{len(keks)} KEKs; that of new snapshots is used until {day}"
    soon = "soon: the first write after that makes a new one, which needs the right to wrap and to unwrap"
    return Finding(found=found, due=False, why=soon if due - now <= _SOON_MS else "not soon")


def size(count: int) -> str:
    """Return a number of bytes for people: ``1.2 MB``."""
    value, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < _THOUSAND:
            break
        value, unit = value / _THOUSAND, larger
    return f"{count} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


STEPS: Final = (
    Step(name="compact", look=_look_compact, do=_compact, speed=20 << 20, rows=True),
    Step(name="rewrite-deletes", look=_look_deletes, do=_rewrite_deletes, speed=20 << 20, rows=True),
    Step(name="rewrite-manifests", look=_look_manifests, do=_rewrite_manifests, speed=20, rows=True),
    Step(name="expire", look=_look_expire, do=_expire, speed=20, deletes=True),
    Step(name="leftovers", look=_look_leftovers, do=_remove_leftovers, speed=1_000, deletes=True, searches=True),
    Step(name="keys", look=_look_keys, do=None),
)
