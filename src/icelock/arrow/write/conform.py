"""Input batches as batches of the stored schema: columns found by name, values kept exactly, anything else refused.

Columns and struct members are matched by name in any order; a missing one is its write default, or null when optional.
Accepted besides the stored form itself: dictionaries, run-end encoding, large and view forms of text, binary and lists, fixed-size
lists, narrower numbers, coarser times, any time zone for ``timestamptz`` (the instant is the same), text for ``uuid``.
Refused: values that would change (nanoseconds into microseconds unless asked for, a zone dropped or invented), columns
that the table lacks, nulls where the table requires values.

A cast preserves every value or fails; integers of another signedness are checked value by value. The one exception is explicit:
``downcast_ns`` rounds nanoseconds down to microseconds, as Java's ``DateTimeUtil.nanosToMicros`` does.

Invariant: in the result lists have no values below a null and offsets start at 0, so empty nested columns whose offsets had 0 bytes
(case C-57) are whole; a required field has no nulls of its own, and where its parent is null, any value.

Not here: which Arrow form is stored (``arrow.write.schema``), rows that are no Arrow tables (``arrow.write.given``).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat
from pyiceberg import types as ice

from icelock.arrow.nested import Converter, all_valid, converted_list, converted_map, struct_array
from icelock.arrow.types import UUID_STORAGE, floating, is_list_like, repeated
from icelock.arrow.write.schema import WriteSchema
from icelock.errors import PolicyError
from icelock.metadata.schema_paths import near_columns

_MICROSECOND: Final = (ice.TimestampType, ice.TimestamptzType, ice.TimeType)


def identity(array: pa.Array) -> pa.Array:
    """Return the array unchanged."""
    return array


def primitive_converter(source: pa.DataType, target: ice.PrimitiveType, stored: pa.DataType, *, downcast_ns: bool) -> Converter | None:
    """Return a function from arrays of ``source`` to ``stored``, the form of ``target``; None if values could change."""
    if isinstance(target, ice.StringType) and _is_text(source):
        return lambda array: _checked_text(array.cast(stored))
    if source == stored:
        return identity
    if isinstance(target, ice.UUIDType):
        return _to_uuid(source)
    if isinstance(target, _MICROSECOND) and getattr(source, "unit", None) == "ns":
        return _rounded_down(stored) if downcast_ns and _TAKES[type(target)](source) else None
    if isinstance(target, ice.DecimalType):
        taken = pat.is_decimal(source) and source.scale == target.scale and source.precision <= target.precision
    elif isinstance(target, ice.FixedType):
        taken = _is_binary(source)  # the cast checks the length
    else:
        rule = _TAKES.get(type(target))
        taken = rule is not None and rule(source)
    return (lambda array: array.cast(stored)) if taken else None


def _checked_text(array: pa.Array) -> pa.Array:
    """Check that text is UTF-8, and return it: Arrow accepts and writes any bytes."""
    if len(array):
        wide = pat.is_large_string(array.type)
        _, offsets, data = array.buffers()
        if data is not None:
            ends = pa.Array.from_buffers(pa.int64() if wide else pa.int32(), len(array) + 1, [None, offsets], offset=array.offset)
            start, end = ends[0].as_py(), ends[len(array)].as_py()
            if not data.slice(start, end - start).to_pybytes().isascii():  # ASCII is UTF-8, and far faster to check
                array.validate(full=True)
    return array


def _rounded_down(stored: pa.DataType) -> Converter:
    if pat.is_time(stored):
        return lambda array: array.cast(stored, safe=False)
    return lambda array: pc.floor_temporal(array, unit="microsecond").cast(stored)


def _to_uuid(source: pa.DataType) -> Converter | None:
    if source == UUID_STORAGE:
        return lambda array: pa.ExtensionArray.from_storage(pa.uuid(), array)
    if _is_text(source):
        return lambda array: pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([None if text is None else uuid.UUID(text).bytes for text in array.to_pylist()], UUID_STORAGE)
        )
    return None


def _is_text(source: pa.DataType) -> bool:
    return bool(pat.is_string(source) or pat.is_large_string(source) or pat.is_string_view(source))


def _is_binary(source: pa.DataType) -> bool:
    return bool(pat.is_binary(source) or pat.is_large_binary(source) or pat.is_binary_view(source) or pat.is_fixed_size_binary(source))


def _up_to(bits: int) -> Callable[[pa.DataType], bool]:
    return lambda source: bool(pat.is_integer(source) and source.bit_width <= bits)


def _timestamp(*, zoned: bool) -> Callable[[pa.DataType], bool]:
    return lambda source: bool(pat.is_timestamp(source) and (source.tz is not None) == zoned)


_TAKES: Final[dict[type[ice.PrimitiveType], Callable[[pa.DataType], bool]]] = {
    ice.BooleanType: pat.is_boolean,
    ice.IntegerType: _up_to(32),
    ice.LongType: _up_to(64),
    ice.FloatType: floating(32),
    ice.DoubleType: floating(64),
    ice.DateType: pat.is_date,
    ice.TimeType: pat.is_time,
    ice.TimestampType: _timestamp(zoned=False),
    ice.TimestampNanoType: _timestamp(zoned=False),
    ice.TimestamptzType: _timestamp(zoned=True),
    ice.TimestamptzNanoType: _timestamp(zoned=True),
    ice.StringType: _is_text,
    ice.BinaryType: _is_binary,
}


@dataclass(frozen=True, slots=True)
class _Slot:
    """One field of the result: where its values come from, and what must be true for them."""

    path: str
    required: bool
    arrow: pa.Field
    index: int | None
    convert: Converter
    default: Any

    def take(self, arrays: Sequence[pa.Array], rows: int, parent: pa.Array | None) -> pa.Array:
        parent_nulls = 0 if parent is None else parent.null_count
        if self.index is None:
            array = repeated(self.default, self.arrow.type, rows)
            if parent_nulls and self.default is not None:
                array = pc.if_else(parent.is_valid(), array, pa.scalar(None, array.type))  # type: ignore[union-attr]
        else:
            array = _converted(self.convert, arrays[self.index], self.path)
        if self.required:
            _check_present(self.path, array.null_count - parent_nulls)
            return _without_nulls(array)
        return array


class InputPlan:
    """How batches of one Arrow schema become batches of a table's stored schema."""

    def __init__(self, source: pa.Schema, target: WriteSchema, *, downcast_ns: bool = False) -> None:
        """Compare the two schemas.

        Args:
            source: the schema of the batches.
            target: the stored schema.
            downcast_ns: round nanoseconds down to microseconds instead of refusing them.

        Raises:
            PolicyError: the input does not fit the table; names every column that does not.
        """
        compiler = _Compiler(downcast_ns=downcast_ns)
        stored = {field.field_id: arrow for field, arrow in zip(target.fields, target.arrow, strict=True)}
        self._slots = compiler.slots(target.schema.fields, stored, source, "")
        self._schema = target.arrow
        if compiler.problems:
            raise PolicyError(f"the input does not fit the table: {'; '.join(compiler.problems)}")

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch in the stored schema, without a copy where the forms are the same.

        Raises:
            PolicyError: a null where the table requires a value, or a value that the column cannot hold; names the column.
        """
        columns = batch.columns
        return pa.RecordBatch.from_arrays([slot.take(columns, batch.num_rows, None) for slot in self._slots], schema=self._schema)


class _Compiler:
    def __init__(self, *, downcast_ns: bool) -> None:
        self.problems: list[str] = []
        self._downcast_ns = downcast_ns

    def slots(
        self, fields: Sequence[ice.NestedField], stored: dict[int, pa.Field], source: pa.Schema | pa.StructType, prefix: str
    ) -> list[_Slot]:
        names = [field.name for field in source]
        for name in sorted({name for name in names if names.count(name) > 1}):
            self.problems.append(f"the input has column {prefix + name!r} more than once")
        known = {field.name for field in fields}
        extra = sorted(set(names) - known)
        if extra:
            listed = ", ".join(repr(prefix + name) for name in extra)
            near = near_columns(extra, known - set(names))
            remedy = "add it to the table by update_schema, in SQL by ALTER TABLE ... ADD COLUMN, or drop it from the input"
            self.problems.append(f"the table has no column {listed} ({remedy}){near}")
        slots = []
        for field in fields:
            index = names.index(field.name) if field.name in names else None
            kind = None if index is None else source.field(index).type
            if isinstance(field.field_type, ice.UnknownType):
                self._check_unknown(prefix + field.name, kind)
            else:
                slots.append(self._slot(field, stored[field.field_id], kind, index, prefix + field.name))
        return slots

    def _slot(self, field: ice.NestedField, stored: pa.Field, source: pa.DataType | None, index: int | None, path: str) -> _Slot:
        convert: Converter = identity
        if source is not None:
            convert = self.converter(source, field.field_type, stored.type, path)
        elif field.required and field.write_default is None:
            self.problems.append(f"column {path!r} is required, and the input lacks it")
        return _Slot(path, field.required, stored, index, convert, field.write_default)

    def _check_unknown(self, path: str, source: pa.DataType | None) -> None:
        if source is not None and not pat.is_null(source):
            self.problems.append(f"column {path!r} is of type unknown and takes nulls only, not {source}")

    def converter(self, source: pa.DataType, target: ice.IcebergType, stored: pa.DataType, path: str) -> Converter:
        if pat.is_null(source):
            return lambda array: pa.nulls(len(array), stored)
        if pat.is_dictionary(source):
            values = self.converter(source.value_type, target, stored, path)
            return lambda array: pc.take(values(array.dictionary), array.indices)
        if pat.is_run_end_encoded(source):
            return _runs_decoded(self.converter(source.value_type, target, stored, path))
        if isinstance(source, pa.BaseExtensionType) and source != stored:
            inner = self.converter(source.storage_type, target, stored, path)
            return lambda array: inner(array.storage)
        found = self._nested_or_primitive(source, target, stored, path)
        if found is None:
            self.problems.append(f"column {path!r} is {target}, and the input has {source}{_hint(source, target)}")
            return identity
        return found

    def _nested_or_primitive(self, source: pa.DataType, target: ice.IcebergType, stored: pa.DataType, path: str) -> Converter | None:
        if isinstance(target, ice.PrimitiveType):
            return primitive_converter(source, target, stored, downcast_ns=self._downcast_ns)
        if isinstance(target, ice.StructType) and pat.is_struct(source):
            fields = {field.field_id: stored.field(index) for index, field in enumerate(target.fields)}
            return _structs(self.slots(target.fields, fields, source, f"{path}."), stored)
        if isinstance(target, ice.ListType) and is_list_like(source):
            convert = self.converter(source.value_type, target.element_type, stored.value_type, f"{path}.element")
            element = _checked(convert, f"{path}.element", required=target.element_required)
            return lambda array: converted_list(array, stored, element)
        if isinstance(target, ice.MapType) and pat.is_map(source):
            key = _checked(self.converter(source.key_type, target.key_type, stored.key_type, f"{path}.key"), f"{path}.key", required=True)
            convert = self.converter(source.item_type, target.value_type, stored.item_type, f"{path}.value")
            value = _checked(convert, f"{path}.value", required=target.value_required)
            return lambda array: converted_map(array, stored, key, value)
        return None


def _runs_decoded(convert: Converter) -> Converter:
    """Convert each run's value once, then repeat it: Arrow decodes runs of few types only."""

    def run(array: pa.Array) -> pa.Array:
        runs = pa.array(range(len(array.values)), pa.int32())
        kind = pa.run_end_encoded(array.run_ends.type, runs.type)
        numbers = pa.Array.from_buffers(kind, len(array), [None], offset=array.offset, children=[array.run_ends, runs])
        return pc.take(convert(array.values), pc.run_end_decode(numbers))

    return run


def _structs(slots: Sequence[_Slot], stored: pa.DataType) -> Converter:
    def run(array: pa.Array) -> pa.Array:
        children = array.flatten()  # a parent's nulls are the children's, so that a required child can be checked
        return struct_array(array, [slot.take(children, len(array), array) for slot in slots], stored)

    return run


def _checked(convert: Converter, path: str, *, required: bool) -> Converter:
    """Convert the values of lists or maps, and check that required ones are there."""

    def run(array: pa.Array) -> pa.Array:
        values = convert(array)
        if required:
            _check_present(path, values.null_count)
        return values

    return run


def _without_nulls(array: pa.Array) -> pa.Array:
    """Return an array whose nulls, all below a null parent, are any values: Arrow writes no nulls into a required column."""
    kind = array.type
    if not array.null_count:
        return array
    if pat.is_struct(kind):
        return pa.StructArray.from_arrays([array.field(index) for index in range(kind.num_fields)], fields=list(kind))
    if pat.is_map(kind):
        return pa.MapArray.from_arrays(array.offsets, array.keys, array.items, type=kind)
    if pat.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, array.values, type=kind)
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(kind, _without_nulls(array.storage))
    return all_valid(array)


def _converted(convert: Converter, array: pa.Array, path: str) -> pa.Array:
    try:
        return convert(array)
    except (pa.ArrowException, ValueError) as e:
        if isinstance(e, PolicyError):
            raise
        if "UTF8" in str(e):
            raise PolicyError(
                f"column {path!r} has text that is not UTF-8, which no table can hold: decode it with its own encoding"
            ) from e
        raise PolicyError(
            f"column {path!r} has values that the table's column cannot hold: {type(e).__name__} converting {array.type}"
        ) from e


def _check_present(path: str, missing: int) -> None:
    if missing > 0:
        raise PolicyError(
            f"column {path!r} is required, and the input has {missing} nulls in it: give them values, or make the column optional"
        )


def _hint(source: pa.DataType, target: ice.IcebergType) -> str:
    if not pat.is_temporal(source):
        return ""
    if pat.is_date(source) and str(target).startswith("timestamp"):
        return " (a time of day is not invented: cast the input to timestamps)"
    if pat.is_timestamp(source) and (source.tz is None) == str(target).startswith("timestamptz"):
        return " (a time zone is neither dropped nor invented: cast the input)"
    if getattr(source, "unit", None) == "ns" and str(target) in {"timestamp", "timestamptz", "time"}:
        return (
            " (nanoseconds would be lost: cast the input to microseconds, use a _ns type, or set PyIceberg's "
            "downcast-ns-timestamp-to-us-on-write)"
        )
    return ""
