"""Rows as users have them, as Arrow: frames of pandas, Polars and narwhals, DuckDB relations, scans, lists of dicts.

Whatever offers the Arrow PyCapsule interface (``__arrow_c_stream__``, ``__arrow_c_array__``) is taken by it, a stream batch by batch.
PySpark's frames are refused although some offer it: they would be pulled to the driver without a word.

pandas and dicts have no types of their own for half of what a table holds, so their columns are read with the table's schema where pandas
or Python cannot say it, and only if every value stays what it is: whole numbers that pandas keeps as floats because of a gap, nanoseconds
that are whole microseconds, decimals of fewer digits, maps. Everything else goes by ``arrow.write.conform``: text
is no number, and a time zone is neither dropped nor invented.

Gaps of pandas (NaN, NaT, NA, None) are nulls, as in ``pa.Table.from_pandas``. Its index is no column: a nameless one numbers or labels the
rows and is left out, as in ``polars.from_pandas``; one that has a name is data (after ``groupby``, ``set_index``) and is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.table import DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE
from pyiceberg.utils.config import Config

from icelock.arrow.write.schema import write_schema
from icelock.errors import PolicyError

# By the first part of a type's module and its name, so that no library needs to be imported.
_CALLS: Final = {
    ("polars", "LazyFrame"): "give the result of df.collect()",
    ("narwhals", "LazyFrame"): "give the result of df.collect()",
    ("pyspark", "DataFrame"): 'use df.write.format("icelock").mode("append").save("catalog.namespace.table"), or give df.toArrow()',
    ("numpy", "ndarray"): 'make a Table with pa.table({"column": array}) (import pyarrow as pa)',
    ("builtins", "dict"): "make a Table with pa.table(columns) for a dict of columns (import pyarrow as pa), or give [row] for one row",
}
_TAKEN: Final = "give a pyarrow Table, a frame of pandas or Polars, a list of dicts, or anything with __arrow_c_stream__"
_EXACT: Final = 2**53
_WRONG: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)


def downcasts_ns() -> bool:
    """Whether the client's settings round nanoseconds down to microseconds."""
    return bool(Config().get_bool(DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE))


def as_arrow(rows: Any, schema: Schema, *, downcast_ns: bool = False) -> pa.Table | pa.RecordBatchReader:
    """Return rows in Arrow form; of a stream nothing but the schema is read.

    Args:
        rows: what the user gave, see above.
        schema: the table's.
        downcast_ns: whether nanoseconds are rounded down later, so that they need not be whole microseconds.

    Raises:
        PolicyError: not rows, or values that cannot be those of their column; says what to give instead.
    """
    if isinstance(rows, (pa.Table, pa.RecordBatchReader)):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    library, name = _kind(rows)
    if library == "narwhals" and name == "DataFrame":
        return as_arrow(rows.to_native(), schema, downcast_ns=downcast_ns)
    if (library, name) in {("pandas", "DataFrame"), ("geopandas", "GeoDataFrame")}:
        return _of_pandas(rows, schema, downcast_ns=downcast_ns)
    if isinstance(rows, (list, tuple)):
        return _of_list(rows, schema, downcast_ns=downcast_ns)
    if (library, name) not in _CALLS:
        found = _of_capsule(rows)
        if found is not None:
            return found
    said = "None" if rows is None else f"{library}.{name}".removeprefix("builtins.")
    raise PolicyError(f"these are no rows: {said}; {_CALLS.get((library, name), _TAKEN)}")


def _kind(rows: Any) -> tuple[str, str]:
    kind = type(rows)
    return kind.__module__.partition(".")[0], kind.__name__


def _of_capsule(rows: Any) -> pa.Table | pa.RecordBatchReader | None:
    if isinstance(rows, type) or not (hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__")):
        return None
    try:
        if hasattr(rows, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(rows)
        return pa.Table.from_batches([pa.record_batch(rows)])
    except (pa.ArrowException, TypeError) as e:
        raise PolicyError(f"these are no rows: {'.'.join(_kind(rows))} is one column, or no Arrow data; {_TAKEN}") from e


def _of_pandas(frame: Any, schema: Schema, *, downcast_ns: bool) -> pa.Table:
    named = [name for name in frame.index.names if name is not None]
    if named:
        listed = ", ".join(repr(name) for name in named)
        raise PolicyError(
            f"the pandas frame has {listed} in its index, which is no column: df.reset_index() makes it one, df.reset_index(drop=True) "
            "leaves it out"
        )
    odd = next((name for name in frame.columns if not isinstance(name, str)), None)
    if odd is not None:
        raise PolicyError(f"the pandas frame has a column that is named {odd!r}, which is no text: rename the columns")
    names = list(frame.columns)
    columns = _Columns(schema, downcast_ns=downcast_ns)
    return pa.table([columns.column(name, frame.iloc[:, index]) for index, name in enumerate(names)], names=names)


def _of_list(rows: Sequence[Any], schema: Schema, *, downcast_ns: bool) -> pa.Table:
    if rows and all(isinstance(one, pa.RecordBatch) for one in rows):
        return pa.Table.from_batches(rows)
    other = next((one for one in rows if not isinstance(one, Mapping)), None)
    if other is not None:
        raise PolicyError(f"these are no rows: a list with a {'.'.join(_kind(other)).removeprefix('builtins.')} in it; {_TAKEN}")
    if not rows:
        return write_schema(schema).arrow.empty_table()
    names = list(dict.fromkeys(name for row in rows for name in row))
    odd = next((name for name in names if not isinstance(name, str)), None)
    if odd is not None:
        raise PolicyError(f"a row has a column that is named {odd!r}, which is no text")
    lacking = next((name for name in names for row in rows if name not in row), None)
    if lacking is not None:
        raise PolicyError(f"column {lacking!r} is in some of the rows and not in others: give it in all (None is a null) or in none")
    columns = _Columns(schema, downcast_ns=downcast_ns)
    return pa.table([columns.column(name, [row[name] for row in rows]) for name in names], names=names)


class _Columns:
    """Columns without Arrow types, for a table's schema."""

    def __init__(self, schema: Schema, *, downcast_ns: bool) -> None:
        stored = write_schema(schema)
        self._targets = {field.name: (field.field_type, arrow.type) for field, arrow in zip(stored.fields, stored.arrow, strict=True)}
        self._downcast_ns = downcast_ns

    def column(self, name: str, values: Any) -> pa.Array | pa.ChunkedArray:
        """Return a column's values in the type that they have, or in the table's where that loses nothing."""
        target, stored = self._targets.get(name, (None, None))
        objects = isinstance(values, list) or str(values.dtype) == "object"
        try:
            return self._array(list(values) if objects else values, target, stored)
        except _WRONG as e:
            what = "no Arrow type holds" if target is None else f"the table's column ({target}) cannot hold"
            raise PolicyError(f"column {name!r} has values that {what}: {type(e).__name__} making Arrow of them") from e

    def _array(self, values: Any, target: ice.IcebergType | None, stored: pa.DataType | None) -> pa.Array | pa.ChunkedArray:
        """Arrow is never told a type: it would make 1 of 1.5, drop fields of structs, and drop or invent time zones."""
        objects = isinstance(values, list)
        if objects and isinstance(target, ice.MapType):
            return self._maps(values, target, stored)
        found = pa.array(values)
        if target is None:
            return found
        closer = self._closer(found.type, target, stored, objects=objects)
        if closer is not None and pat.is_floating(found.type):
            _check_whole(found)
        return found if closer is None else found.cast(closer)

    def _maps(self, values: list[Any], target: ice.MapType, stored: pa.DataType) -> pa.Array:
        """Make maps of dicts or lists of pairs, which Arrow takes for structs and lists."""
        rows = [None if one is None else list(one.items() if isinstance(one, Mapping) else one) for one in values]
        pairs = [pair for row in rows if row is not None for pair in row]
        ends = list(itertools.accumulate((len(row or ()) for row in rows), initial=0))
        starts = [None if row is None else start for row, start in zip(rows, ends, strict=False)]
        keys = self._array([key for key, _ in pairs], target.key_type, stored.key_type)
        items = self._array([item for _, item in pairs], target.value_type, stored.item_type)
        return pa.MapArray.from_arrays(pa.array([*starts, ends[-1]], pa.int32()), keys, items)

    def _closer(self, kind: pa.DataType, target: ice.IcebergType, stored: pa.DataType, *, objects: bool) -> pa.DataType | None:
        """Return a type nearer to the table's where pandas and Python know no better one; a cast preserves every value or fails."""
        whole = isinstance(target, (ice.IntegerType, ice.LongType))
        if whole and ((pat.is_integer(kind) and kind.bit_width > stored.bit_width) or (pat.is_floating(kind) and not objects)):
            return stored
        if isinstance(target, ice.DecimalType) and pat.is_decimal(kind):
            return stored
        if objects and isinstance(target, ice.DoubleType) and pat.is_integer(kind):
            return stored
        finer = pat.is_timestamp(kind) and kind.unit == "ns" and pat.is_timestamp(stored) and stored.unit == "us"
        if finer and (kind.tz is None) == (stored.tz is None) and not self._downcast_ns:
            return pa.timestamp("us", kind.tz)
        return None


def _check_whole(numbers: pa.Array | pa.ChunkedArray) -> None:
    """Check that floats are whole numbers that nothing was rounded to; that they have no fraction is the cast's to check.

    Raises:
        ValueError: one is beyond 2**53, where a double does not tell neighbours apart.
    """
    largest = pc.max(pc.abs(numbers)).as_py()
    if largest is not None and largest > _EXACT:
        raise ValueError("a float beyond 2**53")
