"""``table.maintenance``: PyIceberg's ``expire_snapshots``, and what Java's procedures do.

Not here: files that belong to no snapshot (``icelock.maintenance.leftovers``), all tables of a catalog (``icelock.maintenance``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import ClassVar

from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.sorting import SortOrder

from icelock.kms.client import KmsClient
from icelock.shown import Described
from icelock.table.maintenance.compaction.compact import Compacted, Compaction, CompactRequest, Progress
from icelock.table.maintenance.compaction.rewrite_deletes import Into, RewrittenDeletes, rewrite_deletes
from icelock.table.maintenance.compaction.rewrite_manifests import ManifestProgress, RewrittenManifests, rewrite_manifests
from icelock.table.maintenance.optimize import Budget, Clock, Optimized, OptimizeStep, optimize
from icelock.table.maintenance.optimize_policy import OptimizePolicy
from icelock.table.maintenance.removal.expire import ExpireSnapshots, check_gc
from icelock.table.maintenance.rotation.rotate import Level, Rotated, rotate
from icelock.table.maintenance.workers import HERE, Workers
from icelock.table.state import OpenTable


class MaintenanceTable(Described):
    """Work on a table that changes no row of its current state."""

    _inside: ClassVar[frozenset[str]] = frozenset({"tbl"})

    def _title(self) -> str:
        return f"Maintenance of table {'.'.join(self.tbl.name())}"

    def __init__(self, table: OpenTable, workers: Workers = HERE) -> None:
        self.tbl = table
        self._workers = workers

    def expire_snapshots(self) -> ExpireSnapshots:
        """Return a builder of an expiry, which does nothing before its ``commit``.

        Raises:
            PolicyError: the table is plain, or says ``gc.enabled=false``.
        """
        self.tbl.io_for(self.tbl.metadata)
        check_gc(self.tbl.metadata, table=".".join(self.tbl.name()))
        return ExpireSnapshots(self.tbl)

    def compact(
        self,
        *,
        where: BooleanExpression | str = ALWAYS_TRUE,
        sort_by: SortOrder | str | None = None,
        z_order_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        branch: str = MAIN_BRANCH,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Compacted:
        """Put small data files together, cut large ones, and write those with many deleted rows without these; rows and row ids stay.

        By this process, whose memory is that of a few open files, or, with an order, of the rows of a group
        (``max-file-group-size-bytes``). ``icelock.spark.compact`` does it by Spark's tasks.

        Args:
            where: only files that may have such rows.
            sort_by: the order of rows in a group of files: ``"table"`` for the table's own, ``"city desc nulls last, bucket(4, id)"``,
                or a ``SortOrder``.
            z_order_by: columns by which rows are put in Z-order instead.
            options: Java's of rewrite_data_files, such as ``target-file-size-bytes`` and ``rewrite-all``.
            branch: the branch to compact.
            dry_run: only say what would be done.
            progress: called after each group of files with the bytes read so far, and those to read.

        Raises:
            PolicyError: an unknown option, order or branch; nothing was written.
            IntegrityError: a file fails authentication. This and other errors of files: nothing more is committed; with
                ``partial-progress.enabled`` other groups are, and ``failed_files`` counts.
            CommitFailedException: the catalog refused each time; likewise.
            ValidationException: the columns or partition spec were changed meanwhile, or the branch was replaced; likewise.
            CommitStateUnknownException: the outcome of the commit is unknown; no file of it was deleted.
        """
        request = CompactRequest.of(self.tbl, where=where, sort_by=sort_by, z_order_by=z_order_by, options=options, branch=branch)
        compaction = Compaction(self.tbl, request, self._workers.combine, progress)
        return compaction.plan() if dry_run else compaction.run()

    def rewrite_manifests(
        self,
        *,
        spec_id: int | None = None,
        rewrite_if: Callable[[ManifestFile], bool] | None = None,
        branch: str = MAIN_BRANCH,
        dry_run: bool = False,
        progress: ManifestProgress | None = None,
    ) -> RewrittenManifests:
        """Put manifests together to ``commit.manifest.target-size-bytes``, sorted by partition, without entries of removed files.

        Files, rows and row ids stay; nothing is committed if nothing is gained. Manifests that others add meanwhile stay as they are.

        Args:
            spec_id: only manifests of this partition spec; None: of each, by itself.
            rewrite_if: only manifests that it takes, for example ``lambda manifest: manifest.manifest_length < 100_000``.
            branch: the branch whose manifests they are.
            dry_run: only say what would be done.
            progress: called after each group of manifests with how many were replaced so far, and how many will be.

        Raises:
            PolicyError: the table has no such branch or spec; nothing was written.
            KeyUnavailableError, IntegrityError, OSError: a manifest cannot be read; nothing was changed.
            CommitFailedException: the catalog refused each time; likewise.
            CommitStateUnknownException: the outcome of the commit is unknown; no file of it was deleted.
        """
        return rewrite_manifests(self.tbl, spec_id=spec_id, rewrite_if=rewrite_if, branch=branch, dry_run=dry_run, progress=progress)

    def rewrite_deletes(
        self, *, into: Into = "vectors", branch: str = MAIN_BRANCH, dry_run: bool = False, progress: Progress | None = None
    ) -> RewrittenDeletes:
        """Put deletes into another form; rows stay, and none comes back. Delete files that apply to no data file are removed.

        Args:
            into: ``"vectors"``: position deletes, equality deletes and vectors of a data file become one deletion vector; ``"data"``:
                data files are also written without their deleted rows, so that after this and an expiry these are in no file.
            branch: whose deletes.
            dry_run: only say what would be done.
            progress: called with the bytes of data files done so far, and of all: for ``"data"`` in two steps, vectors and data.

        Raises:
            PolicyError: another ``into``, or no such branch; nothing was written.
            IntegrityError: a file fails authentication; steps that were committed before stay.
            CommitFailedException: the catalog refused each time; likewise.
            ValidationException: the columns or partition spec were changed meanwhile; likewise.
            CommitStateUnknownException: the outcome of the commit is unknown; no file of it was deleted.
        """
        return rewrite_deletes(self.tbl, into=into, branch=branch, dry_run=dry_run, progress=progress, workers=self._workers)

    def rotate(
        self,
        level: Level = "wrap",
        *,
        to_key: str | None = None,
        kms: KmsClient | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Rotated:
        """Give the table new keys. Levels ``kek`` and ``wrap`` are one commit that touches no file; rows and row ids always stay.

        A call of level ``lists``, ``data`` or ``all`` that was killed, or left files, is gone on with by the next one.

        Args:
            level: ``"kek"``: the next snapshots are sealed under a new KEK; ``"wrap"``: the KEKs are wrapped anew, after which nothing
                needs the master key, its version or the KMS that wrapped them before; ``"lists"``: the manifests and manifest lists of all
                snapshots are also written again under a new KEK, and nothing needs the older ones; ``"data"``: the files of all branches
                are also written again under a new KEK, so that after an expiry nothing needs the older ones; ``"all"``: those of all
                older snapshots and tags, too, so that nothing needs them at once. By this process; ``icelock.spark.rotate`` lets Spark's
                tasks write the files of branches.
            to_key: not kek: the master key from now on; None: the present one, by its newest version.
            kms: wrap: the KMS of that key; None: the catalog's. From then on all clients need a catalog that is set up for it.
            dry_run: only say what hangs on which KEK, with files and bytes, and what would be done.
            progress: lists, data, all: called after each group of files with the bytes read so far, and those to read (data: of a branch).

        Raises:
            PolicyError: another level, an argument of another level, a table without keys, lists, all: a table of a REST server; all: files
                of deleted positions; or a rotation of another level is not finished. Nothing was changed.
            KeyUnavailableError, IntegrityError: a KEK cannot be opened, does not open what it should, or cannot be wrapped, or, lists: a
                manifest or manifest list cannot be read; likewise.
            CommitFailedException: the catalog refused each time. This, and errors of files: what was committed stays.
            CommitStateUnknownException: the outcome of the commit is unknown.
        """
        return rotate(self.tbl, level, to_key=to_key, kms=kms, dry_run=dry_run, progress=progress, workers=self._workers)

    def optimize(
        self,
        *,
        within: timedelta | None = None,
        options: Mapping[str, str] | None = None,
        dry_run: bool = False,
        told: Callable[[OptimizeStep], None] | None = None,
        clock: Clock = time.monotonic,
    ) -> Optimized:
        """Do what the table's numbers ask for: compact, rewrite deletes and manifests, expire, remove leftovers; by ``icelock.optimize.*``.

        Steps that fail are part of the result, and the others go on, but for those that delete.

        Args:
            within: no step begins that is not likely to end in this time.
            options: of ``icelock.optimize.*`` without that prefix, in the place of the table's, such as ``{"compact": "false"}``.
            dry_run: only say what would be done, and why.
            told: called after each step.
            clock: seconds, for ``within``.

        Raises:
            PolicyError: the table is plain, an option or a property ``icelock.optimize.*`` is unknown or no such value; nothing was done.
        """
        self.tbl.io_for(self.tbl.metadata)
        policy = OptimizePolicy.of(self.tbl.metadata.properties, options)
        return optimize(self, policy, Budget(within=within, clock=clock), dry_run=dry_run, told=told)
