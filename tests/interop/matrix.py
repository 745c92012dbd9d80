"""The matrix: features, and what each of its four cells must come to.

A cell is a writer and a reader. ``java-arrow`` and ``java-spark``: Java writes, icelock reads in plain Python or in Spark.
``arrow-java`` and ``spark-java``: icelock writes, Java reads; then Java appends, and everything is still encrypted.
What is declared here is what the tests demand and what docs/interop.md shows.

Not here: the features themselves (``features_*``), running them (``test_matrix``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from tests.interop.compare import canonical
from tests.interop.java_side import Java
from tests.interop.our_side import ArrowWriter, Ours, SparkWriter
from tests.interop.session import Session
from tests.interop.views import EVERYTHING, View

JAVA_ARROW: Final = "java-arrow"
JAVA_SPARK: Final = "java-spark"
ARROW_JAVA: Final = "arrow-java"
SPARK_JAVA: Final = "spark-java"
CELLS: Final = (JAVA_ARROW, JAVA_SPARK, ARROW_JAVA, SPARK_JAVA)
READING: Final = (JAVA_ARROW, JAVA_SPARK)
WRITING: Final = (ARROW_JAVA, SPARK_JAVA)


@dataclass(frozen=True, kw_only=True)
class Engines:
    """Both sides of one session."""

    session: Session
    java: Java
    ours: Ours


Append = ArrowWriter | SparkWriter
Expected = Mapping[View, list[str] | None]
"""Rows by what is read; None where only the other engine's answer is known."""


@dataclass(frozen=True, kw_only=True)
class Refused:
    """icelock refuses, with ``error`` and a message that matches; ``why`` is for the page."""

    error: type[Exception]
    match: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Absent:
    """There is nothing to run: one of the sides has no such thing."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Feature:
    """``java`` and ``ours`` make a table and say what must be read from it; ``ours`` is given the writer that appends rows.

    ``java_appends``: Java can append to the table by SQL. ``mixed``: read with the policy that allows plain files. ``also``: what
    else must hold of the table, in every cell. ``probe``: what is read after Java appended.
    """

    name: str
    group: str
    title: str
    java: Callable[[Engines, str], Expected] | Absent
    ours: Callable[[Engines, str, Append], Expected] | Absent
    cells: Mapping[str, Refused | Absent] = field(default_factory=dict)
    java_appends: bool = True
    mixed: bool = False
    also: Callable[[Engines, str], None] | None = None
    probe: View = EVERYTHING

    def cell(self, name: str) -> Refused | Absent | None:
        """Return why a cell is not simply "equal rows"; None if it is."""
        if name in self.cells:
            return self.cells[name]
        whole = self.java if name in READING else self.ours
        return whole if isinstance(whole, Absent) else None


def rows_of(*tables: pa.Table) -> list[str]:
    """Return the rows of tables of one schema as they must be read."""
    return canonical(pa.concat_tables(tables))


def run(steps: Any, *arguments: Any) -> Any:
    """Call the steps of a feature."""
    assert callable(steps)
    return steps(*arguments)
