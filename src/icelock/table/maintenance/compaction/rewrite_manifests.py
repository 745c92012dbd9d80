"""``table.maintenance.rewrite_manifests()``: what it returns, and what is checked before.

Not here: the snapshot (``table.commit.manifest_rewrite``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import ManifestFile
from pyiceberg.table.snapshots import Operation

from icelock.errors import PolicyError
from icelock.shown import Shown
from icelock.table.commit.manifest_order import Choice, groups_to_write
from icelock.table.commit.manifest_rewrite import EncryptedManifestRewrite
from icelock.table.commit.manifest_rewrite import Progress as ManifestProgress
from icelock.table.commit.producer import merge_sizes
from icelock.table.refs import check_branch
from icelock.table.state import OpenTable

__all__ = ["ManifestProgress", "RewrittenManifests", "rewrite_manifests"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RewrittenManifests(Shown):
    """What became of the manifests, or with ``dry_run`` would.

    Args:
        replaced: manifests that are listed no more.
        created: manifests that are listed instead; of a dry run an estimate.
        kept: manifests that are listed as they were.
        entries: live files in the new manifests; of a dry run by the manifest list.
        snapshot_id: of the snapshot that was committed; None if there was nothing to gain.
        dry_run: whether nothing was done.
    """

    replaced: int = 0
    created: int = 0
    kept: int = 0
    entries: int = 0
    snapshot_id: int | None = None
    dry_run: bool = False


def rewrite_manifests(
    table: OpenTable,
    *,
    spec_id: int | None,
    rewrite_if: Callable[[ManifestFile], bool] | None,
    branch: str,
    dry_run: bool,
    progress: ManifestProgress | None,
) -> RewrittenManifests:
    """Rewrite manifests; arguments and errors are those of ``MaintenanceTable.rewrite_manifests``."""
    name = ".".join(table.name())
    table.refresh()
    table.io_for(table.metadata)
    check_branch(table.metadata.refs, branch, table=name)
    if branch not in table.metadata.refs:
        return RewrittenManifests(dry_run=dry_run)
    if spec_id is not None and spec_id not in table.metadata.specs():
        raise PolicyError(f"table {name} has no partition spec {spec_id}; it has {sorted(table.metadata.specs())}")
    if rewrite_if is not None and not callable(rewrite_if):
        raise PolicyError(f"rewrite_if is {rewrite_if!r}; it must be a function that takes a manifest and returns whether to rewrite it")
    choice = Choice(spec_id=spec_id) if rewrite_if is None else Choice(spec_id=spec_id, rewrite_if=rewrite_if)
    if dry_run:
        return _planned(table, choice, branch)
    transaction: Any = table.transaction()
    transaction.staged.prepare_kek()
    producer = EncryptedManifestRewrite(operation=Operation.REPLACE, transaction=transaction, io=table.io, branch=branch)
    with transaction.staged.discarding_on_error(), producer:
        producer.choose(choice, progress)
    transaction.commit_transaction()
    if producer.idle:
        return RewrittenManifests(kept=producer.kept)
    return RewrittenManifests(
        replaced=len(producer.replaced),
        created=len(producer.created),
        kept=producer.kept,
        entries=producer.entries,
        snapshot_id=producer.snapshot_id,
    )


def _planned(table: OpenTable, choice: Choice, branch: str) -> RewrittenManifests:
    metadata = table.metadata
    target = merge_sizes(metadata.properties)[0] or 1
    snapshot = metadata.snapshot_by_name(branch)
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    groups = groups_to_write(manifests, choice, target, metadata)
    replaced = sum(len(group.manifests) for group in groups)
    return RewrittenManifests(
        replaced=replaced,
        created=sum(group.outputs(target) for group in groups if group.live),
        kept=len(manifests) - replaced,
        entries=sum(group.live for group in groups),
        dry_run=True,
    )
