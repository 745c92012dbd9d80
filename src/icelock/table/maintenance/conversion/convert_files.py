"""The files of a conversion: which data files of the plain table are written again, and what came of each.

A data file never changes, so what its live rows are depends on few things: the file, the delete files that apply to it, and the table's
schema, partition spec, sort order and name mapping. These are its ``Source``: with what they say, not only their ids, which stand for other
ones after the catalog was restored to an older version. Rows that were written for a source are good for each version
of the table that has this source; whatever others commit meanwhile (appends, deletes, compactions, rollbacks, another schema) makes other
sources, and only they are written in the next round.

Each source is read as a plain table is read (Parquet and Avro, deletes applied), and written by the table's settings to encrypted files
with a key of its own each; by threads, in the memory of their open files, or by an engine.

Not here: rounds and the commit (``table.maintenance.conversion.convert``).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import Any, Final, Protocol

from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from icelock.arrow.read.context import ReadContext
from icelock.arrow.write.combine import combine_files
from icelock.arrow.write.row_rewrite import with_lineage
from icelock.arrow.write.whole_file import write_whole
from icelock.arrow.write.writer import DataFileWriter, WriteContext
from icelock.errors import CommitError
from icelock.io.listing import delete_files
from icelock.keys.entropy import Entropy
from icelock.metadata.manifest import DataFile
from icelock.metadata.table_metadata import TableMetadataV3, name_mapping_of
from icelock.plan.task import DeleteFile, ScanTask
from icelock.table.commit.staged import Staged
from icelock.table.maintenance.conversion.kept_copies import KeptCopies, are_there
from icelock.table.plain import AnyTable

_AT_ONCE: Final = 4
_EMPTY_FILES: Final = "include_empty_files"

Source = tuple[Any, ...]
"""Of what the rows depend that a data file has in a version of its table."""


def source_of(task: ScanTask, form: Source) -> Source:
    """Return the source of a planned data file; ``form`` is that of the table (``form_of``)."""
    lineage = task.first_row_id, task.sequence_number
    return (task.path, task.spec_id, task.partition, *lineage, *(_delete(file) for file in task.deletes), *form)


def _delete(file: DeleteFile) -> Source:
    return file.path, file.content, file.content_offset, file.content_size, file.equality_ids


def form_of(metadata: TableMetadata) -> Source:
    """Return what of a table's form decides how rows are read and written: a digest of all of it, in a tuple."""
    mapping = name_mapping_of(metadata)
    chosen = (metadata.current_schema_id, metadata.default_spec_id, metadata.default_sort_order_id)
    parts = [*metadata.schemas, *metadata.partition_specs, *metadata.sort_orders, *(() if mapping is None else (mapping,))]
    return (sha256(repr((chosen, [part.model_dump_json() for part in parts])).encode()).hexdigest(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The data files of one version of a plain table, and what reads them; ``snapshots`` are those to keep, parents first.

    ``form`` is that of the table: a later call has no use for copies that were written of another one.
    """

    tasks: Mapping[Source, ScanTask]
    read: ReadContext
    form: Source = ()
    snapshots: tuple[Any, ...] = ()

    @classmethod
    def of(cls, table: AnyTable) -> Plan:
        """Plan the current state of the main branch, with files that have no rows, as their entries say: whoever can write there lies.

        Raises:
            FormatError, OSError: a manifest cannot be read.
        """
        scan, form = table.scan(), form_of(table.metadata)
        scan = scan.update(options={**scan.options, _EMPTY_FILES: "true"})
        listed: Counter[Source] = Counter()
        tasks: dict[Source, ScanTask] = {}
        for task in scan.iter_tasks():
            source = source_of(task, form)
            tasks[*source, listed[source]] = task  # a file that a table lists twice has its rows twice
            listed[source] += 1
        return cls(tasks=tasks, read=scan.read_context(), form=form)

    @property
    def size(self) -> int:
        """Bytes of the data files on storage."""
        return sum(task.file_size for task in self.tasks.values())


class WriteFiles(Protocol):
    """Writes the live rows of data files to new ones: ``write_here``, or an engine."""

    def __call__(
        self,
        read: ReadContext,
        write: WriteContext,
        tasks: Sequence[ScanTask],
        entropy: Entropy,
        *,
        by_name: bool,
        whole: Sequence[Schema] = (),
    ) -> Generator[tuple[int, list[DataFile]]]:
        """Yield the number of each data file with its new files, in any order; after an error no file is left that was not yielded.

        With ``whole``, the schemas of the table, each file becomes one of all its rows, as they come (``write_whole``).
        """


@dataclass(kw_only=True)
class Written:
    """What was written so far, by source; ``by`` whom, and whether columns go ``by_name`` (``combine_files``).

    With ``kept`` what is finished is kept there, and what an earlier call kept is ``reused``.
    """

    entropy: Entropy
    by: WriteFiles
    by_name: bool = False
    kept: KeptCopies | None = None
    files: dict[Source, list[DataFile]] = field(default_factory=dict)
    reused: set[Source] = field(default_factory=set)

    def missing(self, plan: Plan) -> dict[Source, ScanTask]:
        """Return what of a plan is not written yet."""
        return {source: task for source, task in plan.tasks.items() if source not in self.files}

    @property
    def paths(self) -> list[str]:
        """The locations of all files."""
        return [file.file_path for files in self.files.values() for file in files]

    def of(self, plan: Plan) -> list[DataFile]:
        """Return the files with the rows of a plan, as new ones of a commit."""
        found = [file for source in plan.tasks for file in self.files[source]]
        for file in found:
            file.fresh = True  # an attempt that was refused has used it
        return found

    @property
    def lasting(self) -> list[str]:
        """The locations of those that the next call may use."""
        return [] if self.kept is None else [path for path in self.paths if path in self.kept.paths]

    def superfluous(self, plan: Plan) -> list[str]:
        """Forget what a plan does not need; return the locations of its files, but for those of an earlier call."""
        gone = [source for source in self.files if source not in plan.tasks]
        return [file.file_path for source in gone for file in self.files.pop(source) if source not in self.reused]

    def write(self, plan: Plan, context: WriteContext, done: Callable[[ScanTask], None]) -> None:
        """Write what is missing; after an error, what was finished stays known.

        Args:
            plan: of the table as it is now.
            context: of the encrypted table.
            done: told of each data file.

        Raises:
            PolicyError, FormatError, OSError: a file cannot be read or written.
            IntegrityError: a data file has not as many rows as its entry says.
        """
        missing = self.missing(plan)
        known = {} if self.kept is None else self.kept.of(missing, plan.form)
        self._write({source: task for source, task in missing.items() if source not in known}, plan, context, done)
        for (source, files), there in zip(known.items(), are_there(context.io, known.values()), strict=True):
            if there:
                self.files[source] = files
                self.reused.add(source)
                done(missing[source])
        self._write({source: missing[source] for source in known if source not in self.reused}, plan, context, done)

    def _write(self, missing: Mapping[Source, ScanTask], plan: Plan, context: WriteContext, done: Callable[[ScanTask], None]) -> None:
        sources, tasks = list(missing), list(missing.values())
        if not tasks:
            return
        with closing(self.by(plan.read, context, tasks, self.entropy, by_name=self.by_name)) as written:
            for number, files in written:
                self.files[sources[number]] = files
                if self.kept is not None:
                    self.kept.add(sources[number], plan.form, tasks[number], files)
                done(tasks[number])
        if not all(source in self.files for source in sources):
            raise CommitError("not all data files were written, and nobody said why: the table was not converted")


def write_here(
    read: ReadContext,
    write: WriteContext,
    tasks: Sequence[ScanTask],
    entropy: Entropy,
    *,
    by_name: bool,
    whole: Sequence[Schema] = (),
) -> Generator[tuple[int, list[DataFile]]]:
    """Write the rows of data files by threads of this process; see ``WriteFiles``."""

    def one(number: int, task: ScanTask) -> list[DataFile]:
        if whole:
            return write_whole(read, write, task, schemas=whole, task_id=number, entropy=entropy)
        return combine_files(read, write, [task], task_id=number, entropy=entropy, by_name=by_name)

    yield from in_threads(tasks, one, write.io)


def in_threads(
    tasks: Sequence[ScanTask], one: Callable[[int, ScanTask], list[DataFile]], io: FileIO
) -> Generator[tuple[int, list[DataFile]]]:
    """Write a few data files at a time by ``one``; see ``WriteFiles``."""
    left = iter(enumerate(tasks))
    running: dict[Future[list[DataFile]], int] = {}
    with ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1)) as pool:
        try:
            while True:
                for number, task in islice(left, 2 * _AT_ONCE - len(running)):
                    running[pool.submit(one, number, task)] = number
                if not running:
                    return
                for future in sorted(wait(running, return_when=FIRST_COMPLETED).done, key=lambda future: future.exception() is not None):
                    files = future.result()
                    yield running.pop(future), files
        finally:
            ended = [future for future in running if not future.cancel() and future.exception() is None]
            delete_files(io, [file.file_path for future in ended for file in future.result()])


def context_of(staged: Staged, plain: TableMetadata) -> WriteContext:
    """Return how rows are written: with the row ids of a table of version 3.

    Raises:
        PolicyError: settings, types or columns that an encrypted table cannot have; nothing was written.
    """
    context = staged.write_context()
    return checked(with_lineage(context) if isinstance(plain, TableMetadataV3) else context, staged.entropy)


def checked(context: WriteContext, entropy: Entropy) -> WriteContext:
    """Return a context that can be written with; errors as ``context_of``."""
    DataFileWriter(context, task_id=0, entropy=entropy)  # checks, and creates nothing before the first row
    return context


def bytes_of(tasks: Iterable[ScanTask]) -> int:
    """Return the size of data files on storage."""
    return sum(task.file_size for task in tasks)
