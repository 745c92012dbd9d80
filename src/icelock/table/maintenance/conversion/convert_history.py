"""A conversion that keeps history: every snapshot, or those that branches and tags name, encrypted under their ids.

Each data file that a kept snapshot reaches is written again once, with the same rows in the same order (``arrow.write.whole_file``),
however many snapshots reach it. So deletes need not be applied: files of position deletes, vectors and equality deletes are written again
too, and name the new files. Each manifest is written once with the same entries, and each list once (``table.commit.converted_history``).

What was written stays good whatever others commit meanwhile, as files, manifests and snapshots never change: a later round adds what is
new.

Not here: rounds and the switch (``table.maintenance.conversion.convert``).
"""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyroaring import BitMap64

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.deletes import PUFFIN, check_equality, check_range, deleted_positions
from icelock.arrow.write.context import WriteContext
from icelock.arrow.write.positions import write_positions
from icelock.arrow.write.whole_file import write_whole
from icelock.errors import PolicyError
from icelock.format.encrypted_key import EncryptedKey
from icelock.io.puffin.write import DeletionVector, write_vectors
from icelock.keys.entropy import Entropy
from icelock.metadata.manifest import DataFile, checked_entries, file_with
from icelock.plan.task import ScanTask, TaskBuilder
from icelock.table.commit.conversion import stage_converted
from icelock.table.commit.converted_history import ConvertedHistory, history_of
from icelock.table.commit.staged import Staged
from icelock.table.maintenance.conversion.convert_files import Plan, Source, WriteFiles, Written, form_of
from icelock.table.plain import AnyTable
from icelock.table.rows.file_rewrite import vector_entry
from icelock.table.table import Table

History = Literal["drop", "refs", "keep"]


class KeptHistory:
    """The history of one conversion: which snapshots, and what was written of them besides data files."""

    def __init__(self, history: History) -> None:
        self.which = history
        self._made = ConvertedHistory()
        self._schemas: list[Any] = []

    @property
    def paths(self) -> list[str]:
        """Locations of the files that were written, without data files."""
        return self._made.written

    def plan(self, table: AnyTable) -> Plan:
        """Plan the data files of the kept snapshots of a version.

        Raises:
            PolicyError: a snapshot without a manifest list, or one that has a data file twice.
            FormatError, OSError: a list or manifest cannot be read.
        """
        snapshots = history_of(table.metadata, self.which, table=".".join(table.name()))
        self._schemas = by_id(table.metadata)
        tasks: dict[Source, ScanTask] = {}
        seen: set[str] = set()
        listed: dict[str, list[str]] = {}  # where a file is live
        build: Any = TaskBuilder(self._schemas).build
        manifests = {snapshot.snapshot_id: snapshot.manifests(table.io) for snapshot in snapshots}
        for manifest in itertools.chain.from_iterable(manifests.values()):
            if manifest.manifest_path in seen or manifest.content != ManifestContent.DATA:
                continue
            seen.add(manifest.manifest_path)
            for entry in checked_entries(manifest, table.io):
                entry.data_file.spec_id = manifest.partition_spec_id
                listed.setdefault(entry.data_file.file_path, []).append(manifest.manifest_path)
                tasks[source_of_path(entry.data_file.file_path)] = build(_AsTask(entry.data_file))
        _check_once(manifests, listed, table=".".join(table.name()))
        return Plan(tasks=tasks, read=table.scan().read_context(), form=form_of(table.metadata), snapshots=snapshots)

    def written_by(self, files_by: WriteFiles) -> WriteFiles:
        """Return what has ``files_by`` write whole data files of the newest plan."""

        def by_whole_files(
            read: ReadContext,
            write: WriteContext,
            tasks: Sequence[ScanTask],
            entropy: Entropy,
            *,
            by_name: bool,
            whole: Sequence[Schema] = (),
        ) -> Generator[tuple[int, list[DataFile]]]:
            yield from files_by(read, write, tasks, entropy, by_name=by_name, whole=whole or self._schemas)

        return by_whole_files

    def has(self, plan: Plan) -> bool:
        """Whether all snapshots of a plan were written."""
        return self._made.has(plan.snapshots)

    def superfluous(self, plan: Plan) -> list[str]:
        """Return locations of what was written, and a plan's snapshots do not have; some delete files may be missing here."""
        return self._made.superfluous(plan.snapshots)

    def add(self, staged: Staged, table: AnyTable, plan: Plan, written: Written) -> None:
        """Write what is new of a plan's snapshots, whose data files are ``written``.

        Raises:
            PolicyError, FormatError, IntegrityError, OSError: a list, manifest or delete file cannot be read or written.
        """

        def made(path: str) -> DataFile | None:
            source = source_of_path(path)
            if source not in written.files:
                self._made.left_out.add(path)
            return next(iter(written.files.get(source, ())), None)

        deletes = NewDeletes(plan.read, staged, table.metadata, made, self._made.written.append)
        self._made.add(staged, table, plan.snapshots, made, deletes)

    def staged(self, empty: Table, plain: TableMetadata, plan: Plan, keks: tuple[EncryptedKey, ...]) -> Any:
        """Return the transaction of the encrypted table with its history, which adds a snapshot to each branch.

        Args:
            empty: the encrypted table before its first snapshot.
            plain: the plain table.
            plan: of it.
            keks: made for this conversion.
        """
        metadata = self._made.onto(empty.metadata, plain, plan.snapshots)
        location, encryption = empty.metadata_location, empty.encryption
        table = Table(empty.name(), metadata, location, empty.storage, empty.catalog, encryption=encryption)
        transaction = table.transaction()
        transaction.staged.prepare_kek(() if metadata.encryption_keys else keks)
        branches = [name for name, ref in plain.refs.items() if ref.snapshot_ref_type == SnapshotRefType.BRANCH]
        for branch in branches or [MAIN_BRANCH]:
            stage_converted(transaction, (), plain, branch)
        return transaction


def _check_once(manifests: Mapping[int, Iterable[Any]], listed: Mapping[str, Sequence[str]], *, table: str) -> None:
    """Refuse, as a PolicyError, a snapshot that has a data file twice: both would be one file with one set of row ids.

    Args:
        manifests: by snapshot.
        listed: the manifests in which a file is live, by its path.
        table: its name.
    """
    several: dict[str, list[str]] = {}
    for path, places in listed.items():
        for place in places if len(places) > 1 else ():
            several.setdefault(place, []).append(path)
    for snapshot_id, its in manifests.items() if several else ():
        there = Counter(path for manifest in its for path in several.get(manifest.manifest_path, ()))
        twice = next((path for path, count in there.items() if count > 1), None)
        if twice is not None:
            raise PolicyError(
                f"table {table}: snapshot {snapshot_id} lists data file {twice} twice, so its history cannot be kept: rewrite that file "
                "and expire the snapshot, or convert the current state only (history='drop')"
            )


def by_id(metadata: TableMetadata) -> list[Any]:
    """Return the schemas of a table, the oldest first."""
    return sorted(metadata.schemas, key=lambda schema: schema.schema_id)


def source_of_path(path: str) -> Source:
    """Return the source of a data file whose rows are all kept: whatever the table's form, it is the file."""
    return ("whole", path)


@dataclass(frozen=True, slots=True)
class _AsTask:
    """A file as PyIceberg's scan tasks have it, without deletes."""

    file: Any
    delete_files: frozenset[Any] = frozenset()


class NewDeletes:
    """Writes the delete files of a plain table again, for the new data files that ``made`` returns; ``track`` is told what is written."""

    def __init__(
        self,
        read: ReadContext,
        staged: Staged,
        metadata: TableMetadata,
        made: Callable[[str], DataFile | None],
        track: Callable[[str], None],
    ) -> None:
        self._read = read
        self._staged = staged
        self._schemas = by_id(metadata)
        self._build = TaskBuilder(self._schemas)
        self._made = made
        self._track = track
        self._numbers = itertools.count()

    def __call__(self, file: Any) -> DataFile | None:
        """Return the new file of a delete file; None if it deletes nothing of what is kept.

        Raises:
            PolicyError, FormatError, IntegrityError, OSError: it cannot be read or written.
        """
        (delete,) = self._build.deletes([file])
        if file.content == DataFileContent.EQUALITY_DELETES:
            check_equality(self._read, delete)
            return self._equality(file)
        found = []
        for path, positions in deleted_positions(self._read, delete).items():
            data = self._made(path)
            if data is not None:
                check_range(positions, delete, path, data.record_count)
                found.append((data, positions))
        if not found:
            return None
        if delete.file_format.upper() == PUFFIN:
            return self._vector(*found[0])
        context, number = self._staged.write_context(), next(self._numbers)
        pairs = [(data.file_path, of) for data, of in found]
        made = write_positions(context, pairs, task_id=number, entropy=self._staged.entropy)
        self._track(made.file_path)
        return made

    def _equality(self, file: Any) -> DataFile | None:
        task: Any = _AsTask(file)
        files = write_whole(
            self._read,
            self._staged.write_context(),
            self._build.build(task),
            schemas=self._schemas,
            task_id=next(self._numbers),
            entropy=self._staged.entropy,
        )
        if not files:
            return None
        self._track(files[0].file_path)
        return file_with(files[0], content=DataFileContent.EQUALITY_DELETES, equality_ids=list(file.equality_ids))

    def _vector(self, data_file: DataFile, positions: BitMap64) -> DataFile:
        location = self._staged.locations.new_data_location(f"00000-0-{uuid.uuid4()}-00001-deletes.puffin")
        self._track(location)
        output = self._staged.io.new_encrypted_output(location)
        vector = DeletionVector.of(data_file.file_path, positions)
        (place,) = write_vectors(output, [vector])
        return vector_entry(data_file, vector, place, output)
