"""A manifest as columns: the fields of its entries by field id, read without making an object for each entry.

    status snapshot_id sequence_number file_sequence_number | content file_path ... (names of the specification) | p0 p1 ... (partition)

Fields are found by field id, as by PyIceberg's reader. Inherited values are filled in for all entries at once, by the same rules
(``manifest.ManifestFile.fetch_manifest_entry``). Shapes that only other writers produce (types outside ``io.avro.columns``, missing
required values, delete files among data files) raise ``NotColumnarError``, and the row-wise reader decides.

The whole file is decrypted and authenticated before anything is decoded. Plain blocks stay in memory while this object lives, so that
more columns can be read from some of them. Expressions are evaluated one after the other (``_seq``): manifests are read in parallel
already, so waking polars' own threads would only cost time.

Not here: which entries a scan needs (``plan.columnar``).
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DATA_FILE_TYPE, MANIFEST_ENTRY_SCHEMAS, FileFormat
from pyiceberg.types import DecimalType
from pyiceberg.utils.decimal import decimal_required_bytes

from icelock.io.avro.check import AvroBlock, RowCheck
from icelock.io.avro.columns import ColumnReader, FlatField, NotColumnarError, stored_type
from icelock.io.file_io import open_input
from icelock.io.limits import Limits
from icelock.metadata.entry_reader import open_whole
from icelock.metadata.manifest import MOST, NEVER_NEGATIVE, ManifestEntry, ManifestFile, decode_entries, inherit
from icelock.metadata.stored_schema import DATA_FILE, PARTITION, StoredForm, forms
from icelock.plan.partition_set import identity_of
from icelock.properties import ENCRYPTED_VERSION

if TYPE_CHECKING:
    import polars as pl

METRICS: Final = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
"""Columns of (key, value) lists."""

_ENTRY_NAMES: Final[Mapping[int, str]] = {field.field_id: field.name for field in MANIFEST_ENTRY_SCHEMAS[ENCRYPTED_VERSION].fields}
_FILE_NAMES: Final[Mapping[int, str]] = {field.field_id: field.name for field in DATA_FILE_TYPE[ENCRYPTED_VERSION].fields}
_TYPES: Final[Mapping[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("status", "content", "sort_order_id"), ("int",)),
    **dict.fromkeys(("file_path", "file_format", "referenced_data_file"), ("string",)),
    **dict.fromkeys(("column_sizes", *METRICS[:3]), ("array", "long")),
    **dict.fromkeys(METRICS[3:], ("array", "bytes")),
    "key_metadata": ("bytes",),
}
"""Stored types that columns must have; all others are ``long`` or ``int``."""
_REQUIRED: Final = ("status", "file_path", "file_format", "record_count", "file_size_in_bytes")
_PLAIN_LOGICAL: Final = (None, "date", "time-micros", "timestamp-micros", "timestamp-nanos")
_BASE: Final = (*_REQUIRED, "content", "sequence_number", "file_sequence_number", "key_metadata", "first_row_id")
_DELETED: Final = 2
_MOST: Final[Mapping[str, int]] = {"status": 2, "content": 2, **MOST}
_ADDED: Final = 1
_UUID_BYTES: Final = 16

_Convert = Callable[[Any], Any]


class ManifestColumns:
    """The entries of one manifest.

    Raises:
        NotColumnarError: see the module.
        IntegrityError, PolicyError, FormatError: see ``ManifestFile.fetch_manifest_entry``.
    """

    def __init__(self, io: FileIO, manifest: ManifestFile) -> None:
        self.manifest = manifest
        file = open_whole(open_input(io, manifest.manifest_path, manifest.key_metadata), Limits.of(io.properties))
        self._schema = file.schema_text
        self._blocks = list(file.all_blocks())
        form = self._form(file.schema_text)
        try:
            fields, converters = _flat_fields(form.schema)
        except (LookupError, TypeError) as e:
            raise NotColumnarError(f"an invalid schema: {type(e).__name__}") from e
        self._reader = ColumnReader(fields=fields, guard="file_path", check=RowCheck(form.text, location=manifest.manifest_path))
        self.partitions = Partitions(converters)
        self._names = frozenset(field.column for field in fields)
        self._ends = list(itertools.accumulate(block.rows for block in self._blocks))

    def _form(self, schema: bytes) -> StoredForm:
        """Return the form of the bytes; if two are possible, all bytes are checked."""
        try:
            *others, last = forms(schema, location=self.manifest.manifest_path)
        except (LookupError, TypeError, ValueError) as e:
            raise NotColumnarError(f"an invalid schema: {type(e).__name__}") from e
        for form in others:
            check = RowCheck(form.text, location=self.manifest.manifest_path)
            if all(map(check.fits, self._blocks)):
                return form
        return last

    def live(self, more: Sequence[str] = ()) -> pl.DataFrame:
        """Return the entries that are not deleted, with inherited values, and their number in the file as ``row``."""
        stored = self._read(self._blocks, [*_BASE, *self.partitions.columns, *more])
        for name in _REQUIRED:
            if stored.get_column(name).null_count():
                raise NotColumnarError(f"an entry without {name}")
        _check_numbers(stored)
        frame = self._inherited(stored).with_row_index("row")
        if ((frame.get_column("status") != _DELETED) & frame.get_column("sequence_number").is_null()).any():
            raise NotColumnarError("an entry without a sequence number")
        return kept(frame, frame.get_column("status") != _DELETED)

    def some(self, rows: pl.Series, columns: Sequence[str]) -> pl.DataFrame:
        """Return columns of the entries with these ascending numbers; only their blocks are decoded."""
        blocks, numbers = self._with(rows)
        frame = self._read(blocks, columns)
        at = dict(zip(numbers, itertools.count(), strict=False))
        return frame[[at[row] for row in rows]]

    def entries(self, live: pl.DataFrame) -> list[ManifestEntry]:
        """Return entries that ``live`` gave the numbers of; only their blocks are decoded.

        Raises:
            FormatError: as ``ManifestFile.fetch_manifest_entry``.
        """
        row_ids = dict(zip(live.get_column("row"), live.get_column("first_row_id"), strict=True))
        found = []
        for number, entry in self._entries(row_ids):
            if number in row_ids:
                inherit(entry, self.manifest, None)
                entry.data_file.first_row_id = row_ids[number]
                found.append(entry)
        return found

    def around(self, row: int) -> Iterator[tuple[int, ManifestEntry]]:
        """Yield the entries of the block that has the entry with this number, and their numbers; they inherit no row ids.

        Raises:
            FormatError: as ``ManifestFile.fetch_manifest_entry``.
        """
        for number, entry in self._entries([row]):
            inherit(entry, self.manifest, None)
            yield number, entry

    def _entries(self, rows: Iterable[int]) -> Iterator[tuple[int, ManifestEntry]]:
        blocks, numbers = self._with(rows)
        return zip(numbers, decode_entries(self._schema, blocks, location=self.manifest.manifest_path), strict=True)

    def _with(self, rows: Iterable[int]) -> tuple[list[AvroBlock], Iterator[int]]:
        """Return the blocks of some entries, and the numbers of all entries in them."""
        chosen = sorted({bisect.bisect_right(self._ends, row) for row in rows})
        starts = [0, *self._ends]
        numbers = itertools.chain.from_iterable(range(starts[index], starts[index + 1]) for index in chosen)
        return [self._blocks[index] for index in chosen], numbers

    def _read(self, blocks: Sequence[AvroBlock], columns: Sequence[str]) -> pl.DataFrame:
        frame = self._reader.read(blocks, [column for column in columns if column in self._names])
        import polars as pl

        missing = [pl.lit(None).alias(column) for column in columns if column not in self._names]
        return frame.with_columns_seq(missing)

    def _inherited(self, stored: pl.DataFrame) -> pl.DataFrame:
        import polars as pl

        manifest = self.manifest
        inherits = (pl.col("status") == _ADDED) | (manifest.sequence_number == 0)
        number = pl.when(inherits).then(pl.lit(manifest.sequence_number, dtype=pl.Int64)).otherwise(None)
        filled = {name: pl.col(name).cast(pl.Int64).fill_null(number) for name in ("sequence_number", "file_sequence_number")}
        row_id = pl.col("first_row_id").cast(pl.Int64)
        if manifest.first_row_id is not None:
            takes = (pl.col("status") != _DELETED) & row_id.is_null()
            rows = pl.when(takes).then(pl.col("record_count").cast(pl.Int64)).otherwise(0)
            row_id = pl.when(takes).then(rows.cum_sum() - rows + manifest.first_row_id).otherwise(row_id)
        return stored.with_columns_seq(first_row_id=row_id, content=pl.col("content").fill_null(0), **filled)


class Partitions:
    """Converts a manifest's stored partition values to PyIceberg's internal form."""

    def __init__(self, converters: Sequence[_Convert | None]) -> None:
        self._converters = tuple(converters)
        self.columns = tuple(f"p{index}" for index in range(len(self._converters)))

    def of(self, frame: pl.DataFrame) -> list[tuple[Any, ...]]:
        """Return the partition of each entry."""
        if not self.columns:
            return [()] * len(frame)
        stored = frame.select_seq(self.columns).rows()
        return [self._converted(values) for values in stored] if any(self._converters) else stored

    @staticmethod
    def identities(frame: pl.DataFrame, partitions: Sequence[tuple[Any, ...]]) -> Sequence[Hashable]:
        """Return ``identity_of`` of the partitions that ``of`` gave for the frame."""
        return partitions if not any(kind.is_float() for kind in frame.dtypes) else list(map(identity_of, partitions))

    def _converted(self, stored: tuple[Any, ...]) -> tuple[Any, ...]:
        pairs = zip(self._converters, stored, strict=True)
        return tuple(value if value is None or convert is None else convert(value) for convert, value in pairs)


def kept(frame: pl.DataFrame, mask: pl.Series) -> pl.DataFrame:
    """Return the entries where the mask is true; mostly all of them, and then nothing is copied."""
    return frame if mask.all() else frame.filter(mask)


def _check_numbers(frame: pl.DataFrame) -> None:
    """Leave entries with invalid numbers to the row-wise reader, which says what is wrong (``metadata.manifest``)."""
    import polars as pl

    named = [name for name in NEVER_NEGATIVE if name in frame.columns]
    wrong = [pl.any_horizontal((pl.col(name).cast(pl.Int64) < 0).fill_null(value=False) for name in named)]
    wrong += [~pl.col(name).cast(pl.Int64).is_between(0, _MOST[name]).fill_null(value=True) for name in _MOST if name in frame.columns]
    if frame.select_seq(pl.any_horizontal(wrong).any()).item():
        raise NotColumnarError("invalid numbers")


def file_formats(stored: Sequence[str]) -> list[str]:
    """Return the names of file formats in PyIceberg's spelling.

    Raises:
        NotColumnarError: an unknown one.
    """
    try:
        known = {name: str(FileFormat(name).value) for name in set(stored)}
    except ValueError as e:
        raise NotColumnarError(str(e)) from e
    return [known[name] for name in stored]


def _flat_fields(schema: Any) -> tuple[list[FlatField], list[_Convert | None]]:
    """Return the fields of entries side by side, and the converters of stored partition values."""
    fields: list[FlatField] = []
    partition: list[_Convert | None] = []
    for entry_field in _record(schema):
        if entry_field.get("field-id") != DATA_FILE:
            fields.append(_flat(entry_field, _ENTRY_NAMES, len(fields)))
            continue
        for file_field in _record(entry_field["type"]):
            if file_field.get("field-id") != PARTITION:
                fields.append(_flat(file_field, _FILE_NAMES, len(fields)))
                continue
            for part in _record(file_field["type"]):
                fields.append(FlatField(column=f"p{len(partition)}", avro=stored_type(part["type"])))
                partition.append(_converter(part["type"]))
    found = [flat.column for flat in fields]
    if len(set(found)) != len(found) or not set(_REQUIRED) <= set(found):
        raise NotColumnarError(f"fields {found}")
    return fields, partition


def _record(schema: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise NotColumnarError(f"not an Avro record: {schema!r}")
    return schema["fields"]  # type: ignore[no-any-return]


def _flat(stored: Mapping[str, Any], names: Mapping[int, str], position: int) -> FlatField:
    avro = stored_type(stored["type"])
    name = names.get(stored.get("field-id", -1))
    if name is None:
        return FlatField(column=f"unknown{position}", avro=avro)
    kind = avro[1] if isinstance(avro, list) else avro
    wanted = _TYPES.get(name, ("long", "int"))
    if name in ("split_offsets", "equality_ids"):
        good = isinstance(kind, Mapping) and kind.get("items") in ("long", "int")
    elif wanted[0] == "array":
        good = isinstance(kind, Mapping) and _values(kind) in ((wanted[1], "int") if wanted[1] == "long" else (wanted[1],))
    else:
        good = kind in wanted
    if not good:
        raise NotColumnarError(f"{name} of Avro type {avro!r}")
    return FlatField(column=name, avro=avro)


def _values(array: Mapping[str, Any]) -> Any:
    """Return the type of a map's values; a map has int keys."""
    item = array.get("items")
    pair = [field["type"] for field in item["fields"]] if isinstance(item, Mapping) else [None, None]
    return pair[1] if pair[0] == "int" else None


def _converter(avro: Any) -> _Convert | None:
    """Return the converter of a stored partition value; None if none is needed."""
    kind: Any = avro[1] if isinstance(avro, list) else avro
    logical = kind.get("logicalType") if isinstance(kind, Mapping) else None
    name = kind["type"] if isinstance(kind, Mapping) else kind
    if name == "fixed" and "prefix" in kind:
        skipped = len(kind["prefix"]) // 2
        return lambda value: value[skipped:]
    if name == "fixed" and logical == "uuid" and kind["size"] == _UUID_BYTES:
        return None  # bytes, as in literals of filters
    if name == "fixed" and logical == "decimal" and kind["size"] == decimal_required_bytes(kind["precision"]):
        decimal = DecimalType(kind["precision"], kind.get("scale", 0))
        return lambda value: from_bytes(decimal, value)
    if logical not in _PLAIN_LOGICAL or (logical is not None and name not in ("int", "long")):
        raise NotColumnarError(f"a partition field of Avro type {avro!r}")
    return None
