"""``table.maintenance.rewrite_deletes()``: deletes become vectors, or deleted rows are taken out of the data.

Into vectors: one commit (``table.maintenance.compaction.dangling``). Into the data, each step a commit of its own if it has something to
do:

1. deletes become vectors, so that only files with deleted rows are written;
2. these are, without the deleted rows (``table.maintenance.compaction.compact``); their vectors go with them;
3. manifests with entries of removed files are written without these: bounds of values are in them (``table.commit.manifest_rewrite``).

Then no file of the branch's snapshot has the deleted rows; older snapshots have, until they expire. Killed in between, a second call does
what is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from pyiceberg.expressions import AlwaysTrue

from icelock.errors import PolicyError
from icelock.shown import Shown
from icelock.table.maintenance.compaction.compact import Compacted, Compaction, CompactRequest, Progress
from icelock.table.maintenance.compaction.compact_options import CompactOptions
from icelock.table.maintenance.compaction.dangling import CommittedDeletes, commit_deletes, plan_deletes
from icelock.table.maintenance.compaction.rewrite_manifests import rewrite_manifests
from icelock.table.maintenance.workers import HERE, Workers
from icelock.table.refs import check_branch
from icelock.table.state import OpenTable

Into = Literal["vectors", "data"]
_INTO: Final = get_args(Into)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RewrittenDeletes(Shown):
    """What became of the deletes, or with ``dry_run`` would.

    Args:
        vectors: deletion vectors that were written; of a dry run data files whose deletes are to be read.
        removed_delete_files: delete files and vectors that the branch has no more.
        dangling: of these, how many applied to no data file before.
        rewritten_files: data files that were removed, or replaced by files without the deleted rows; of a dry run, into the data, those
            that may have deleted rows.
        added_files: data files in their place; of a dry run 0.
        conflicted_files: data files that other writers touched each time, so that they still have deleted rows.
        snapshots: ids of the snapshots that were committed.
        dry_run: whether nothing was done.
    """

    vectors: int = 0
    removed_delete_files: int = 0
    dangling: int = 0
    rewritten_files: int = 0
    added_files: int = 0
    conflicted_files: int = 0
    snapshots: tuple[int, ...] = ()
    dry_run: bool = False


def rewrite_deletes(
    table: OpenTable, *, into: str, branch: str, dry_run: bool, progress: Progress | None, workers: Workers
) -> RewrittenDeletes:
    """Rewrite deletes; arguments and errors are those of ``MaintenanceTable.rewrite_deletes``."""
    if into not in _INTO:
        raise PolicyError(f"rewrite_deletes: into is {into!r}; it must be {' or '.join(map(repr, _INTO))}")
    table.refresh()
    metadata = table.metadata
    table.io_for(metadata)
    check_branch(metadata.refs, branch, table=".".join(table.name()))
    if branch not in metadata.refs:
        return RewrittenDeletes(dry_run=dry_run)
    if dry_run:
        return _planned(table, into, branch)
    vectors = commit_deletes(table, branch, vectors=True, find=workers.find_deleted, progress=progress)
    if into == "vectors":
        return _result(vectors)
    request = CompactRequest(where=AlwaysTrue(), branch=branch, options=_with_deletes(metadata.properties))
    data = Compaction(table, request, workers.combine, progress).run()
    manifests = rewrite_manifests(
        table, spec_id=None, rewrite_if=lambda manifest: manifest.deleted_files_count != 0, branch=branch, dry_run=False, progress=None
    )
    return _result(vectors, data, () if manifests.snapshot_id is None else (manifests.snapshot_id,))


def _with_deletes(properties: dict[str, str]) -> CompactOptions:
    return replace(CompactOptions.parse({}, properties), any_delete=True)


def _planned(table: OpenTable, into: str, branch: str) -> RewrittenDeletes:
    plan = plan_deletes(table, branch, vectors=True)
    rewritten = 0
    if into == "data":
        request = CompactRequest(where=AlwaysTrue(), branch=branch, options=_with_deletes(table.metadata.properties))
        rewritten = Compaction(table, request, HERE.combine).plan().rewritten_files
    return RewrittenDeletes(
        vectors=len(plan.files),
        removed_delete_files=len(plan.obsolete),
        dangling=len(plan.dangling),
        rewritten_files=rewritten,
        dry_run=True,
    )


def _result(vectors: CommittedDeletes, data: Compacted | None = None, more: tuple[int, ...] = ()) -> RewrittenDeletes:
    data = data or Compacted()
    first = () if vectors.snapshot_id is None else (vectors.snapshot_id,)
    return RewrittenDeletes(
        vectors=vectors.vectors,
        removed_delete_files=vectors.removed_delete_files + data.removed_delete_files,
        dangling=vectors.dangling,
        rewritten_files=vectors.removed_data_files + data.rewritten_files,
        added_files=data.added_files,
        conflicted_files=data.conflicted_files,
        snapshots=(*first, *data.snapshots, *more),
    )
