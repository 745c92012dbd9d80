"""Reads the rows of plain Parquet files, for ``add_files`` to write them encrypted. The plain files stay as they are.

A file whose field ids are this table's is read by id: the column with that id is, or once was, called as in the file. A file without ids,
or with another table's, is read by the table's name mapping, or else by its column names. Refused are files whose ids and names contradict
each other, columns that the table lacks, types that do not fit, and files that lack a required column. An optional column that a file lacks
gets its default, or null.

Not here: writing the rows (``arrow.write.writer``), the snapshot (``table.data_file_transaction``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types as pat
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import PrimitiveType, TimestamptzNanoType, TimestamptzType, UnknownType

from icelock.arrow.read.file_schema import FileField, file_fields, walk, with_names
from icelock.arrow.read.project import FileColumns, Projection
from icelock.arrow.read.stored_file import ParquetRows
from icelock.arrow.types import can_read, output_schema, output_type, storage
from icelock.arrow.write.conform import primitive_converter
from icelock.errors import PolicyError
from icelock.io.locations import place_of
from icelock.io.parquet import ParquetInput
from icelock.metadata.table_metadata import name_mapping_of
from icelock.table.commit.staged import Staged


class PlainFiles:
    """Plain Parquet files whose rows a table takes in."""

    def __init__(self, staged: Staged, paths: Sequence[str], *, check_duplicates: bool, branch: str | None) -> None:
        """Take the paths; nothing is read."""
        metadata = staged.metadata
        self._staged = staged
        self._paths = list(paths)
        self._check_duplicates = check_duplicates
        self._branch = branch
        self._schema = metadata.schema()
        self._arrow = output_schema(self._schema)
        self._names = _Names.of(self._schema, metadata.schemas, name_mapping_of(metadata))
        self._io = staged.io.inner  # refuses a plain table first

    def check(self) -> None:
        """Check what can be checked without reading rows: the paths, and each file's footer.

        Raises:
            PolicyError: a file is given twice, the table has it, or its columns do not fit, as in a write (``arrow.write.conform``).
            FormatError: a file is not a plain Parquet file, or has a type that does not fit.
            FileNotFoundError: no such file.
        """
        places = [place_of(path) for path in self._paths]
        twice = sorted({path for path, place in zip(self._paths, places, strict=True) if places.count(place) > 1})
        if twice:
            raise PolicyError(f"these files are given more than once: {', '.join(twice)}; give each once")
        if self._check_duplicates:
            self._check_new()
        for path, source, fields in self._opened():
            _check_columns(path, fields, self._schema)
            _check_types(path, fields, self._schema, source.int96_leaves, downcast_ns=self._staged.downcast_ns)
            self._projection(path, fields)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the checked files, one after another, in the table's schema."""
        for path, source, fields in self._opened():
            projection = self._projection(path, fields)
            for _, batch in ParquetRows(source, fields, self._schema).batches(projection.leaves, AlwaysTrue()):
                yield projection.apply(batch)

    def _check_new(self) -> None:
        scan = self._staged.branch_scan(AlwaysTrue(), case_sensitive=True, branch=self._branch)
        known = set() if scan is None else {place_of(planned.file.file_path) for planned in scan.plan_files()}
        ours = sorted(path for path in self._paths if place_of(path) in known)
        if ours:
            raise PolicyError(f"these files are in the table already: {', '.join(ours)}; leave them out")

    def _opened(self) -> Iterator[tuple[str, ParquetInput, FileField]]:
        """Yield each file, open until the next one, with its fields under this table's ids."""
        for path in self._paths:
            with ParquetInput(self._io.new_input(path), None) as source:
                fields = file_fields(source.schema, self._names.mapping, location=path)
                own = self._names.are_own_ids(path, fields)
                yield path, source, fields if own else with_names(fields, self._names.mapping, location=path)

    def _projection(self, path: str, fields: FileField) -> Projection:
        return Projection(self._schema, self._arrow, FileColumns(location=path, fields=fields, constants={}))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """Names of the table's columns: which id a name stands for now, and all names that an id ever had."""

    schema: Schema
    mapping: NameMapping
    ever: Mapping[int, frozenset[str]]

    @classmethod
    def of(cls, schema: Schema, schemas: Iterable[Schema], mapping: NameMapping | None) -> _Names:
        names: dict[int, set[str]] = {}
        for known in schemas:
            for field_id in known.field_ids:
                names.setdefault(field_id, set()).add(known.find_field(field_id).name)
        for field_id, others in _mapped(mapping):
            names.setdefault(field_id, set()).update(others)
        ever = {field_id: frozenset(found) for field_id, found in names.items()}
        return cls(schema=schema, mapping=mapping or schema.name_mapping, ever=ever)

    def are_own_ids(self, path: str, file: FileField) -> bool:
        """Whether a file's field ids are this table's.

        Raises:
            PolicyError: a column has the id of one column, which once had its name, and the name of another column.
        """
        by_name = with_names(file, self.mapping, location=path)
        own, contradicted = True, None
        for (_, field, parent), (_, named, _) in zip(walk(file), walk(by_name), strict=True):
            if field.field_id is None or not (parent is None or pat.is_struct(parent.arrow_type)):
                continue
            own &= field.name in self.ever.get(field.field_id, ())
            if named.field_id not in {None, field.field_id}:
                contradicted = field
        if own and contradicted is not None:
            raise PolicyError(
                f"{path} has column {contradicted.name!r} with field id {contradicted.field_id}: that column once had this "
                "name, and another column has it now, so it is unclear which is meant; write the file without field ids"
            )
        return own


def _mapped(mapping: Iterable[MappedField] | None) -> Iterator[tuple[int, Iterable[str]]]:
    for mapped in mapping or ():
        if mapped.field_id is not None:
            yield mapped.field_id, mapped.names
        yield from _mapped(mapped.fields)


def _check_columns(path: str, file: FileField, schema: Schema) -> None:
    known = set(schema.field_ids)
    extra = [".".join(names) for names, field, _ in walk(file) if field.field_id not in known]
    if extra:
        raise PolicyError(
            f"{path} has columns that the table lacks: {', '.join(extra)}; add them with union_by_name, or write the file without them"
        )
    there = {field.field_id for field in file.children}
    lacking = [field.name for field in schema.fields if field.required and field.initial_default is None and field.field_id not in there]
    if lacking:
        raise PolicyError(f"{path} lacks required columns: {', '.join(lacking)}")


def _check_types(path: str, file: FileField, schema: Schema, instants: frozenset[int], *, downcast_ns: bool) -> None:
    """Refuse what an append of the same rows would refuse: a time zone dropped or made up, lost digits, bytes for text.

    Reading alone accepts more, as other writers may have left it in a table. INT96 timestamps have no zone in the file, and are instants.
    """
    problems = []
    for names, field, _ in walk(file):
        kind = schema.find_type(field.field_id) if field.field_id is not None else None
        if (
            field.children
            or pat.is_null(field.arrow_type)
            or not isinstance(kind, PrimitiveType)
            or isinstance(kind, UnknownType)
            or not can_read(field.arrow_type, kind)
        ):
            continue  # ``Projection`` refuses it
        if field.leaves.start in instants and isinstance(kind, (TimestamptzType, TimestamptzNanoType)):
            continue
        if primitive_converter(storage(field.arrow_type), kind, output_type(kind), downcast_ns=downcast_ns) is None:
            problems.append(f"column {'.'.join(names)!r} is {kind}, and the file has {field.arrow_type}")
    if problems:
        raise PolicyError(
            f"{path} does not fit the table: {'; '.join(problems)}. Write the file with the table's types, or cast its rows and append them"
        )
