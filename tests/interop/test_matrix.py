"""The live matrix: one feature, one writer, one reader, and rows that are equal.

``ICELOCK_MATRIX=all`` runs every cell, for docs/interop.md, and so does ``ICELOCK_SWEEPS=all``. Otherwise one of seven runs, others
each day.
"""

from __future__ import annotations

import os

import pytest

from tests.helpers import turns
from tests.interop.compare import canonical
from tests.interop.features import FEATURES
from tests.interop.independent import verify_chain
from tests.interop.matrix import (
    ARROW_JAVA,
    CELLS,
    JAVA_ARROW,
    JAVA_SPARK,
    READING,
    SPARK_JAVA,
    Absent,
    Engines,
    Expected,
    Feature,
    Refused,
    run,
)
from tests.interop.our_side import ArrowWriter, SparkWriter, plain_files

pytestmark = [pytest.mark.spark, pytest.mark.hive, pytest.mark.slow]

WHOLE = turns.WHOLE or os.environ.get("ICELOCK_MATRIX") == "all"


# A prime to the number of cells of a feature: each day has cells of every kind.
_EVERY = 7
CELLS_OF_ALL = [(feature, cell) for feature in FEATURES for cell in CELLS if not isinstance(feature.cell(cell), Absent)]
ROWS = CELLS_OF_ALL if WHOLE else turns.todays("matrix", CELLS_OF_ALL, _EVERY)
MATRIX = [
    pytest.param(feature, cell, id=f"{feature.name}-{cell}", marks=pytest.mark.cell(feature.name, cell))
    for feature, cell in sorted(ROWS, key=lambda row: (FEATURES.index(row[0]), CELLS.index(row[1])))
]


@pytest.fixture(scope="session")
def by_java(engines, new_table):
    """Return a function that gives the table that Java made for a feature, made once, and what Java reads from it."""
    made: dict[str, tuple[str, Expected]] = {}

    def table(feature: Feature) -> tuple[str, Expected]:
        if feature.name not in made:
            name = new_table(f"j_{feature.name}")
            expected = run(feature.java, engines, name)
            made[feature.name] = name, {view: _agreed(engines, feature, name, view, rows) for view, rows in expected.items()}
        return made[feature.name]

    return table


def _agreed(engines: Engines, feature: Feature, table: str, view, known):
    """Return the rows that Java reads, which must be those that are known."""
    if not feature.java_appends:
        return known
    read = canonical(engines.java.read(table, view))
    assert known is None or read == known, "Java reads other rows than it wrote"
    return read


@pytest.mark.parametrize(("feature", "cell"), MATRIX)
def test_rows_are_equal_or_icelock_refuses(feature, cell, engines, by_java, new_table):
    special = feature.cell(cell)
    if not isinstance(special, Refused):
        _run(feature, cell, engines, by_java, new_table)
        return
    with pytest.raises(Exception, match=f"(?is){special.match}") as caught:
        _run(feature, cell, engines, by_java, new_table)
    # From a process of Spark's the type is a name in the message.
    assert special.error.__name__ in f"{type(caught.value).__name__}: {caught.value}"


def _run(feature, cell, engines, by_java, new_table):
    if cell in READING:
        table, expected = by_java(feature)
        read = engines.ours.read if cell == JAVA_ARROW else engines.ours.read_by_spark
        for view, rows in expected.items():
            assert canonical(read(table, view, mixed=feature.mixed)) == rows, view
            if cell == JAVA_SPARK:
                assert canonical(engines.ours.read_natively(table, view, mixed=feature.mixed)) == rows, view
        if feature.also:
            feature.also(engines, table)
        return
    name = new_table(f"{cell[0]}_{feature.name}")
    expected = run(feature.ours, engines, name, (ArrowWriter if cell == ARROW_JAVA else SparkWriter)(engines.ours))
    for view, rows in expected.items():
        by_java_read = canonical(engines.java.read(name, view))
        assert rows is None or by_java_read == rows, view
        assert canonical(engines.ours.read(name, view)) == by_java_read, view
        if cell == SPARK_JAVA:
            assert canonical(engines.ours.read_natively(name, view)) == by_java_read, view
    if feature.also:
        feature.also(engines, name)
    if feature.java_appends:
        _java_keeps_encrypting(feature, engines, name)
    assert plain_files(engines.ours.table(name).location()) == []
    verify_chain(engines.ours, name)


def _java_keeps_encrypting(feature, engines, table):
    """Java appends a row to what we committed; both read it, and every file is encrypted."""
    before = engines.ours.table(table).scan().count()
    engines.java.sql("INSERT INTO {t} SELECT * FROM {t} LIMIT 1", t=table)
    assert engines.ours.table(table).scan().count() == before + min(before, 1)
    assert canonical(engines.ours.read(table, feature.probe)) == canonical(engines.java.read(table, feature.probe))
