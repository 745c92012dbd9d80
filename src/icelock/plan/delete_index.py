"""Which delete files apply to a data file (spec, "Scan Planning"; Java's DeleteFileIndex).

    equality deletes   sequence number >  the data file's, and the same spec and partition, or an unpartitioned spec
    position deletes   sequence number >= the data file's, and the same spec and partition, or the data file's own path
    deletion vector    sequence number >= the data file's, the data file's own path; position deletes are in it then

A deletion vector or position deletes that name a data file must have its spec and partition; otherwise they are refused, as in Java.
Equality deletes are skipped if counts and bounds show that they share no value with the data file.

Not here: pruning by a scan's filter (``plan.planner``), vectors without an object for each (``plan.plan_deletes``), reading deletes
(``arrow.read.deletes``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import DoubleType, FloatType, IcebergType, UUIDType

from icelock.errors import FormatError
from icelock.metadata.sound_bounds import decoded_bounds
from icelock.plan.partition_set import identity_of, partition_values

PATH_FIELD_ID: Final = 2147483546
_REMEDY: Final = "the table's metadata is damaged; go back to an earlier snapshot"
# NaN is outside bounds, and writers disagree on the order of UUIDs.
_UNORDERED: Final = (DoubleType, FloatType, UUIDType)

DeleteFileId = tuple[str, int | None]
"""A delete file: its path, and the offset of the blob when it is a deletion vector."""

_Partition = tuple[int, Hashable]


def is_vector(file: DataFile) -> bool:
    """Whether a delete file is a deletion vector."""
    return file.content == DataFileContent.POSITION_DELETES and file.file_format == FileFormat.PUFFIN


def delete_file_id(file: DataFile) -> DeleteFileId:
    """Return the identity of a delete file: one file may hold many deletion vectors."""
    return file.file_path, getattr(file, "content_offset", None)


def referenced_data_file(file: DataFile) -> str | None:
    """Return the one data file that position deletes apply to: named, or given by equal path bounds (Java ContentFileUtil)."""
    if file.content != DataFileContent.POSITION_DELETES:
        return None
    named: str | None = getattr(file, "referenced_data_file", None)
    if named is not None:
        return named
    lower, upper = _stored_bounds(file, PATH_FIELD_ID)
    return lower.decode("utf-8", "replace") if lower is not None and lower == upper else None


class DeleteIndex:
    """The delete files of a snapshot by what they may apply to.

    ``specs`` are the table's; ``type_of`` gives the type of a field id in any of its schemas, or None.
    """

    def __init__(self, specs: Mapping[int, PartitionSpec], type_of: Callable[[int], IcebergType | None]) -> None:
        self._specs = specs
        self._type_of = type_of
        self._global = _BySequence()
        self._equality: dict[_Partition, _BySequence] = defaultdict(_BySequence)
        self._positions: dict[_Partition, _BySequence] = defaultdict(_BySequence)
        self._by_path: dict[str, _BySequence] = defaultdict(_BySequence)
        self._vectors: dict[str, tuple[int, DataFile]] = {}
        # Of equality delete files, by identity; the index keeps the files.
        self._metrics: dict[int, _Metrics] = {}

    def add(self, entry: ManifestEntry) -> None:
        """Add a delete file.

        Raises:
            FormatError: a deletion vector without a data file, or a second one for the same data file.
        """
        file, sequence = entry.data_file, entry.sequence_number or 0
        if file.content == DataFileContent.EQUALITY_DELETES:
            spec = self._specs.get(file.spec_id)
            everywhere = spec is not None and all(isinstance(field.transform, VoidTransform) for field in spec.fields)
            (self._global if everywhere else self._equality[_partition(file)]).add(sequence, file)
        elif file.file_format == FileFormat.PUFFIN:
            self._add_vector(sequence, file)
        else:
            path = referenced_data_file(file)
            (self._positions[_partition(file)] if path is None else self._by_path[path]).add(sequence, file)

    def for_data_file(self, entry: ManifestEntry) -> set[DataFile]:
        """Return the delete files that may delete rows of a data file.

        Raises:
            FormatError: one that names the data file but has another spec or partition, or is older.
        """
        file, sequence = entry.data_file, entry.sequence_number or 0
        found = self.equality_of(entry)
        vector = self._vectors.get(file.file_path)
        if vector is not None:
            return found | {self._checked(vector[1], vector[0], file, sequence)}
        in_partition = self._of(self._positions, _partition(file)).newer_or_equal(sequence)
        found.update(delete for delete in in_partition if _path_in_bounds(delete, file.file_path))
        by_path = self._of(self._by_path, file.file_path).newer_or_equal(sequence)
        return found | {self._checked(delete, sequence, file, sequence) for delete in by_path}

    def equality_of(self, entry: ManifestEntry) -> set[DataFile]:
        """Return the equality delete files that may delete rows of a data file."""
        file, sequence = entry.data_file, entry.sequence_number or 0
        equality = [*self._global.newer(sequence), *self._of(self._equality, _partition(file)).newer(sequence)]
        if not equality:
            return set()
        metrics = _Metrics(file, self._type_of)
        return {delete for delete in equality if self._may_match(metrics, delete)}

    def vector_of(self, path: str) -> str | None:
        """Return the file with the deletion vector of a data file."""
        found = self._vectors.get(path)
        return None if found is None else found[1].file_path

    @staticmethod
    def _of(index: Mapping[Any, _BySequence], key: Any) -> _BySequence:
        return index.get(key) or _BySequence()

    def _add_vector(self, sequence: int, file: DataFile) -> None:
        path: str | None = getattr(file, "referenced_data_file", None)
        if path is None:
            refuse_nameless(file.file_path)
        if path in self._vectors:
            refuse_second(path, self._vectors[path][1].file_path, file.file_path)
        self._vectors[path] = (sequence, file)

    @staticmethod
    def _checked(delete: DataFile, sequence: int, file: DataFile, file_sequence: int) -> DataFile:
        check_applies(Placed.of(delete, sequence), Placed.of(file, file_sequence))
        return delete

    def _may_match(self, file: _Metrics, delete: DataFile) -> bool:
        """Whether an equality delete file may share values with a data file, in every column that it compares."""
        theirs = self._metrics.get(id(delete))
        if theirs is None:
            theirs = self._metrics[id(delete)] = _Metrics(delete, self._type_of)
        return all(_share(file.column(field_id), theirs.column(field_id)) for field_id in delete.equality_ids or ())


@dataclass(frozen=True, slots=True)
class Placed:
    """A file, its partition and its sequence number; ``identity`` is that of the partition's ``values``."""

    path: str
    spec_id: int
    values: Any
    identity: Hashable
    sequence: int

    @classmethod
    def of(cls, file: DataFile, sequence: int) -> Placed:
        """Return where a file is."""
        return cls(file.file_path, file.spec_id or 0, file.partition, identity_of(partition_values(file)), sequence)


def check_applies(delete: Placed, file: Placed) -> None:
    """Check that a delete file which names a data file may do so.

    Raises:
        FormatError: it has another spec or partition, or is older.
    """
    if (delete.spec_id, delete.identity) != (file.spec_id, file.identity):
        raise FormatError(
            f"{delete.path} deletes rows of {file.path}, but is in partition {delete.values} of spec {delete.spec_id}, "
            f"not {file.values} of spec {file.spec_id}: {_REMEDY}"
        )
    if delete.sequence < file.sequence:
        raise FormatError(
            f"deletion vector in {delete.path} has sequence number {delete.sequence}, below that of its data file "
            f"{file.path} ({file.sequence}): {_REMEDY}"
        )


def refuse_nameless(path: str) -> NoReturn:
    """Raise the FormatError for a deletion vector without a data file."""
    raise FormatError(f"deletion vector in {path} names no data file (referenced_data_file): {_REMEDY}")


def refuse_second(path: str, one: str, other: str) -> NoReturn:
    """Raise the FormatError for a data file with two deletion vectors."""
    raise FormatError(f"{path} has two deletion vectors, in {one} and {other}: {_REMEDY}")


class _BySequence:
    """Delete files in the order of their sequence numbers."""

    def __init__(self) -> None:
        self._files: list[tuple[int, DataFile]] = []
        self._sorted = True

    def add(self, sequence: int, file: DataFile) -> None:
        self._files.append((sequence, file))
        self._sorted = False

    def newer(self, sequence: int) -> list[DataFile]:
        return self._from(bisect_right, sequence)

    def newer_or_equal(self, sequence: int) -> list[DataFile]:
        return self._from(bisect_left, sequence)

    def _from(self, bisect: Callable[..., int], sequence: int) -> list[DataFile]:
        if not self._sorted:
            self._files.sort(key=_sequence)
            self._sorted = True
        return [file for _, file in self._files[bisect(self._files, sequence, key=_sequence) :]]


def _sequence(found: tuple[int, DataFile]) -> int:
    return found[0]


def _partition(file: DataFile) -> _Partition:
    return file.spec_id or 0, identity_of(partition_values(file))


def _stored_bounds(file: DataFile, field_id: int) -> tuple[bytes | None, bytes | None]:
    return (file.lower_bounds or {}).get(field_id), (file.upper_bounds or {}).get(field_id)


def _path_in_bounds(delete: DataFile, path: str) -> bool:
    lower, upper = _stored_bounds(delete, PATH_FIELD_ID)
    return lower is None or upper is None or lower <= path.encode() <= upper


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """What a manifest entry says of one column; ``has_null`` and ``bounds`` are None if unknown."""

    has_null: bool | None
    all_null: bool
    bounds: tuple[Any, Any] | None


class _Metrics:
    """The columns of one file, each decoded when it is first asked for."""

    def __init__(self, file: DataFile, type_of: Callable[[int], IcebergType | None]) -> None:
        self._file = file
        self._type_of = type_of
        self._columns: dict[int, _Column] = {}

    def column(self, field_id: int) -> _Column:
        if field_id not in self._columns:
            nulls = (self._file.null_value_counts or {}).get(field_id)
            self._columns[field_id] = _Column(
                has_null=None if nulls is None else nulls > 0,
                all_null=nulls is not None and nulls == (self._file.value_counts or {}).get(field_id),
                bounds=self._bounds(field_id),
            )
        return self._columns[field_id]

    def _bounds(self, field_id: int) -> tuple[Any, Any] | None:
        kind = self._type_of(field_id)
        return None if isinstance(kind, _UNORDERED) else decoded_bounds(kind, *_stored_bounds(self._file, field_id))


def _share(ours: _Column, theirs: _Column) -> bool:
    """Whether two columns may have a value in common, null being one."""
    if ours.has_null is not False and theirs.has_null is not False:
        return True
    if (ours.all_null and theirs.has_null is False) or (theirs.all_null and ours.has_null is False):
        return False
    if ours.bounds is None or theirs.bounds is None:
        return True
    return bool(ours.bounds[0] <= theirs.bounds[1] and theirs.bounds[0] <= ours.bounds[1])
