"""The delete files of a plan: deletion vectors as columns, without an object for each until a task needs it, and entries of the others.

A vector costs its paths, its key and some numbers until then. The others are few in tables with vectors, which take their place
(spec, "Deletion Vectors"); so are vectors in manifests that are read row by row. Of both there are entries (``plan.delete_index``).

Not here: which deletes but vectors apply to a data file (``plan.delete_index``), how a manifest is read (``plan.columnar``).
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry
from pyiceberg.typedef import Record

from icelock.plan.delete_index import DeleteIndex, Placed, check_applies, refuse_nameless, refuse_second
from icelock.plan.partition_set import identity_of, partition_values
from icelock.plan.task import DeleteFile, TaskBuilder, in_order, make_vectors, secret

if TYPE_CHECKING:
    import polars as pl

PUFFIN: Final = FileFormat.PUFFIN.value
_DATA_FILE: Final = "referenced_data_file"
_STORED: Final[Mapping[str, str]] = {
    "path": "file_path",
    "key_metadata": "key_metadata",
    "file_size": "file_size_in_bytes",
    "record_count": "record_count",
    "referenced_data_file": _DATA_FILE,
    "content_offset": "content_offset",
    "content_size": "content_size_in_bytes",
}
"""Fields of a ``DeleteFile``, and the columns that they come from."""
VECTOR_COLUMNS: Final = (_DATA_FILE, "content_offset", "content_size_in_bytes")
"""Columns of a manifest that only vectors need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesOfSpec:
    """Some files of one spec, as columns; ``identities`` are those of their ``partitions``."""

    paths: Sequence[str]
    spec_id: int
    partitions: Sequence[Sequence[Any]]
    identities: Sequence[Hashable]
    sequences: Sequence[int | None]

    @classmethod
    def of(cls, entries: Sequence[ManifestEntry]) -> Self:
        """Return the files of entries of one manifest."""
        files = [entry.data_file for entry in entries]
        partitions = [partition_values(file) for file in files]
        return cls(
            paths=[file.file_path for file in files],
            spec_id=files[0].spec_id or 0,
            partitions=partitions,
            identities=list(map(identity_of, partitions)),
            sequences=[entry.sequence_number for entry in entries],
        )

    def placed(self, row: int) -> Placed:
        """Return where one of them is."""
        return Placed(self.paths[row], self.spec_id, Record(*self.partitions[row]), self.identities[row], self.sequences[row] or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsOfManifest:
    """The vectors of one manifest: ``frame`` has the columns of ``_STORED``."""

    frame: pl.DataFrame
    files: FilesOfSpec

    @classmethod
    def of(cls, frame: pl.DataFrame, spec_id: int, partitions: Sequence[tuple[Any, ...]], identities: Sequence[Hashable]) -> Self:
        """Return those of a frame of ``ManifestColumns``."""
        import polars as pl

        types = {"key_metadata": pl.Binary, **dict.fromkeys(("file_path", _DATA_FILE), pl.String)}
        return cls(
            frame=frame.select_seq(pl.col(name).cast(types.get(name, pl.Int64)) for name in _STORED.values()),
            files=FilesOfSpec(
                paths=frame.get_column("file_path"),  # type: ignore[arg-type]  # a sequence of texts
                spec_id=spec_id,
                partitions=partitions,
                identities=identities,
                sequences=frame.get_column("sequence_number").to_list(),
            ),
        )


class PlanDeletes:
    """The delete files of a plan; ``only_vectors``: all were read as columns."""

    def __init__(self, index: DeleteIndex, builder: TaskBuilder) -> None:
        self.only_vectors = True
        self._index = index
        self._builder = builder
        self._equality: set[int] = set()
        self._vectors: pl.DataFrame | None = None
        self._rows: dict[str, int] = {}
        self._places: list[tuple[int, Hashable, int | None]] = []
        self._parts: list[tuple[int, FilesOfSpec]] = []

    @property
    def empty(self) -> bool:
        """Whether there are none."""
        return self.only_vectors and not self._rows

    @property
    def field_ids(self) -> frozenset[int]:
        """The columns that equality deletes compare: metrics of data files may say that they do not apply."""
        return frozenset(self._equality)

    def add(self, entry: ManifestEntry) -> None:
        """Add a delete file of which there is an entry.

        Raises:
            FormatError: see ``DeleteIndex.add``.
        """
        self._index.add(entry)
        self.only_vectors = False
        if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
            self._equality.update(entry.data_file.equality_ids or ())

    def add_vectors(self, parts: Iterable[VectorsOfManifest]) -> None:
        """Add all vectors that were read as columns, after the entries.

        Raises:
            FormatError: a vector without a data file, or a second one for the same data file.
        """
        found = [part for part in parts if len(part.frame)]
        if not found:
            return
        import polars as pl

        for part in found:
            files = part.files
            self._parts.append((len(self._places), files))
            self._places += zip(itertools.repeat(files.spec_id), files.identities, files.sequences, strict=False)
        self._vectors = pl.concat([part.frame for part in found])
        named = self._vectors.get_column(_DATA_FILE)
        self._rows = dict(zip(named, itertools.count(), strict=False))
        self._check_named(named, self._vectors.get_column("file_path"))

    def _check_named(self, named: pl.Series, paths: pl.Series) -> None:
        if named.null_count():
            refuse_nameless(paths[named.is_null().arg_true()[0]])
        for row, path in enumerate(named) if len(self._rows) < len(named) else ():
            if self._rows[path] != row:
                refuse_second(path, paths[row], paths[self._rows[path]])
        for path, row in self._rows.items() if not self.only_vectors else ():
            if (other := self._index.vector_of(path)) is not None:
                refuse_second(path, other, paths[row])

    def of(self, entry: Any, vector: DeleteFile | None) -> tuple[DeleteFile, ...]:
        """Return those that apply to a data file, which has ``vector`` of ``vectors_of``.

        ``entry`` has the attributes of a ``ManifestEntry`` that the index reads.

        Raises:
            FormatError: see ``DeleteIndex.for_data_file``, ``TaskBuilder.build``.
        """
        if self.only_vectors:
            return () if vector is None else (vector,)
        if vector is None:
            return self._builder.deletes(self._index.for_data_file(entry))
        return in_order([vector, *self._builder.deletes(self._index.equality_of(entry))])

    def vectors_of(self, files: FilesOfSpec) -> list[DeleteFile | None]:
        """Return the vector of each data file, of those that were read as columns, or None.

        Raises:
            FormatError: one that has another spec or partition than its data file, or is older.
        """
        found = list(map(self._rows.get, files.paths))
        rows = [row for row in found if row is not None]
        if not rows or self._vectors is None:
            return [None] * len(found)
        spec_id = files.spec_id
        for number, (row, identity, sequence) in enumerate(zip(found, files.identities, files.sequences, strict=True)):
            if row is not None:
                of_spec, of_partition, own = self._places[row]
                if of_spec != spec_id or of_partition != identity or (own or 0) < (sequence or 0):
                    check_applies(self._placed(row), files.placed(number))
        made = iter(_delete_files(_some(self._vectors, rows)))
        return [None if row is None else next(made) for row in found]

    def _placed(self, row: int) -> Placed:
        start, files = next((start, files) for start, files in reversed(self._parts) if start <= row)
        return files.placed(row - start)


def _some(frame: pl.DataFrame, rows: list[int]) -> pl.DataFrame:
    """Return rows of a frame; nothing is copied of those that follow each other, as they do where writers went through files in order."""
    in_a_row = rows[-1] - rows[0] == len(rows) - 1 and rows == list(range(rows[0], rows[0] + len(rows)))
    return frame.slice(rows[0], len(rows)) if in_a_row else frame[rows]


def _delete_files(frame: pl.DataFrame) -> list[DeleteFile]:
    columns: dict[str, Iterable[Any]] = {name: frame.get_column(column).to_list() for name, column in _STORED.items()}
    columns["key_metadata"] = map(secret, columns["key_metadata"])
    return make_vectors(len(frame), columns)
