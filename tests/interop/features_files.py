"""Features of what lies around the rows: metrics, sort order, statistics, plain files, pages, tables without rows.

Not here: formats and codecs of data files (``features_layout``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform

from icelock.errors import IntegrityError, PolicyError
from tests.interop.compare import canonical, plain
from tests.interop.features_layout import layout, primitives
from tests.interop.features_rows import java_numbers, numbered, numbers, our_numbers
from tests.interop.features_schema import I64, TEXT, table_of
from tests.interop.matrix import READING, WRITING, Append, Engines, Expected, Feature, Refused, rows_of
from tests.interop.our_side import path_of, plain_files
from tests.interop.views import EVERYTHING, View

# Metrics

_METRICS: Final = ("value_count", "null_value_count", "nan_value_count", "lower_bound", "upper_bound")
_COUNTS: Final = {"id": (4, 1, None), "b": (4, 1, None), "f": (4, 1, 1), "d": (4, 1, 1), "s": (4, 1, None), "dec38": (4, 1, None)}


def _metrics_agree(engines: Engines, table: str) -> None:
    """Java and icelock read the same metrics, from files of either, and they are true."""
    of_java = {
        row["file_path"]: row["readable_metrics"] for row in engines.java.metadata_table(table, "files", "file_path, readable_metrics")
    }
    ours = engines.ours.table(table).inspect.files().to_pylist()
    assert of_java.keys() == {row["file_path"] for row in ours}
    for row in ours:
        for column, metrics in row["readable_metrics"].items():
            theirs = of_java[row["file_path"]][column]
            shown = {name: plain(metrics[name]) for name in _METRICS}
            assert shown == {name: plain(theirs[name]) for name in _METRICS}, column
            if column in _COUNTS:
                assert tuple(shown[name] for name in _METRICS[:3]) == _COUNTS[column]


def _metrics_by_java(engines: Engines, table: str) -> Expected:
    engines.java.create(table, primitives().schema)
    engines.java.insert(table, primitives())
    return {EVERYTHING: rows_of(primitives())}


def _metrics_by_us(engines: Engines, table: str, append: Append) -> Expected:
    engines.ours.create(table, primitives().schema)
    append(table, primitives())
    return {EVERYTHING: rows_of(primitives())}


# Sort order


def _unsorted() -> pa.Table:
    return table_of(id=(I64, [5, 3, 9, 1, 7, 2]), s=(TEXT, ["b", None, "a", "c", "b", "a"]))


_SORTED: Final = [(1, "c"), (7, "b"), (5, "b"), (9, "a"), (2, "a"), (3, None)]


def _sorted_by_java(engines: Engines, table: str) -> Expected:
    engines.java.create(table, _unsorted().schema)
    engines.java.sql("ALTER TABLE {t} WRITE ORDERED BY s DESC NULLS LAST, id DESC", t=table)
    engines.java.insert(table, _unsorted())
    return {EVERYTHING: rows_of(_unsorted())}


def _sorted_by_us(engines: Engines, table: str, append: Append) -> Expected:
    order = SortOrder(
        SortField(2, transform=IdentityTransform(), direction=SortDirection.DESC, null_order=NullOrder.NULLS_LAST),
        SortField(1, transform=IdentityTransform(), direction=SortDirection.DESC, null_order=NullOrder.NULLS_LAST),
    )
    engines.ours.create(table, _unsorted().schema, sort_order=order)
    append(table, _unsorted())
    positions = engines.java.read(table, View(columns=("_file", "_pos", "id", "s"))).to_pylist()
    assert len({row["_file"] for row in positions}) == 1
    # id 1 and 7 come in this order of s, 5 and 7 share an s: descending ids.
    assert [row["id"] for row in sorted(positions, key=lambda row: row["_pos"])] == [1, 7, 5, 9, 2, 3]
    return {EVERYTHING: rows_of(_unsorted())}


# Statistics: Java writes them plain


def _statistics_by_java(engines: Engines, table: str) -> Expected:
    java_numbers(engines, table, by="bucket(2, id)")
    engines.java.call("compute_table_stats", table)
    engines.java.call("compute_partition_stats", table)
    engines.java.insert(table, numbered(30, 1))
    return {EVERYTHING: numbers(*range(31))}


def _statistics_are_reported(engines: Engines, table: str) -> None:
    """Icelock lists the plain files that Java left, and there are no others."""
    metadata = engines.ours.table(table).metadata
    listed = {path_of(s.statistics_path).name for s in (*metadata.statistics, *metadata.partition_statistics)}
    assert len(listed) == 2
    assert {path.rpartition("/")[2] for path in plain_files(metadata.location)} == listed


def _statistics_by_us(engines: Engines, table: str, append: Append) -> Expected:
    our_numbers(engines, table, append).update_statistics()
    return {}


# Plain files in an encrypted table


def _mixed_by_java(engines: Engines, table: str) -> Expected:
    """Files without field ids, taken in by add_files: a name mapping says which column is which."""
    java = engines.java
    java.create(table, numbered(0, 0).schema)
    java.insert(table, numbered(0, 5))
    folder = f"{java.warehouse}/{table}_plain"
    # Columns in another order, so that positions would be wrong.
    java.spark.sql("SELECT concat('p', id) AS s, id + 100 AS id FROM range(3)").coalesce(1).write.parquet(folder)
    java.spark.sql(f"CALL ice.system.add_files(table => '{java.database}.{table}', source_table => '`parquet`.`{folder}`')")
    rows = pa.concat_tables([numbered(0, 5), table_of(id=(I64, [100, 101, 102]), s=(TEXT, ["p0", "p1", "p2"]))])
    return {EVERYTHING: canonical(rows), View(where="id >= 101"): None}


def _refused_without_policy(engines: Engines, table: str) -> None:
    for read in (engines.ours.read, engines.ours.read_by_spark):
        try:
            read(table)
        except Exception as e:  # noqa: BLE001 - Spark's has the type in its message
            assert "PolicyError" in f"{type(e).__name__}: {e}"  # noqa: PT017
            assert "plain" in str(e)  # noqa: PT017
        else:
            msg = "a plain file was read without the policy that allows it"
            raise AssertionError(msg)


def _add_files_by_us(engines: Engines, table: str, append: Append) -> Expected:
    our_numbers(engines, table, append).add_files([f"{engines.java.warehouse}/nothing.parquet"])
    return {}


# Tables without rows


def _empty_by_java(engines: Engines, table: str) -> Expected:
    engines.java.create(table, numbered(0, 0).schema, by="bucket(2, id)")
    return {EVERYTHING: []}


def _empty_by_us(engines: Engines, table: str, append: Append) -> Expected:
    engines.ours.create(table, numbered(0, 0).schema)
    append(table, numbered(0, 0))
    return {EVERYTHING: []}


def _refuse(error: type[Exception], match: str, why: str, cells: tuple[str, ...]) -> Mapping[str, Any]:
    return dict.fromkeys(cells, Refused(error=error, match=match, why=why))


_PAGES: Final = layout(
    "parquet-pages-v2", "Parquet", "data pages of version 2", numbered(0, 50), properties={"write.parquet.page-version": "v2"}
)
_NO_PAGES_2: Final = "encrypted v2 pages do not cross between Java and Arrow"

FEATURES: Final = (
    Feature(name=_PAGES.name, group=_PAGES.group, title=_PAGES.title, java=_PAGES.java, ours=_PAGES.ours,
            cells={**_refuse(IntegrityError, "page", _NO_PAGES_2, READING), **_refuse(PolicyError, "page-version", _NO_PAGES_2, WRITING)}),
    Feature(name="metrics", group="Metadata", title="metrics: counts and bounds",
            java=_metrics_by_java, ours=_metrics_by_us, also=_metrics_agree),
    Feature(name="sort-order", group="Metadata", title="sort order", java=_sorted_by_java, ours=_sorted_by_us),
    Feature(name="empty", group="Metadata", title="tables without rows", java=_empty_by_java, ours=_empty_by_us),
    Feature(name="statistics", group="Plain files", title="statistics files (Java writes them plain: read on, and listed)",
            java=_statistics_by_java, ours=_statistics_by_us, also=_statistics_are_reported,
            cells=_refuse(PolicyError, "statistics", "there is no encrypted form of them yet", WRITING)),
    Feature(name="plain-files", group="Plain files", title="plain files taken in by add_files, by name mapping, if the policy allows",
            java=_mixed_by_java, ours=_add_files_by_us, mixed=True, also=_refused_without_policy,
            cells=_refuse(PolicyError, "add_files", "they would be plain", WRITING)),
)  # fmt: skip
