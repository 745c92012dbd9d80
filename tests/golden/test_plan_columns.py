"""Plans of Java's tables made of columns are those made row by row, for filters on every column, a third of them a day."""

from __future__ import annotations

import logging
from typing import Any
from unittest.mock import patch

import polars as pl  # noqa: F401 - few entries are read as columns only if it is in use
import pytest
from pyiceberg.expressions import AlwaysTrue, EqualTo, GreaterThanOrEqual, IsNull, LessThan, Not, NotNull

import icelock
from icelock.plan.task import TaskBuilder
from tests.golden.relocate import TABLES, catalog_properties, metadata_location
from tests.helpers.turns import todays


def filters(table: Any) -> list[Any]:
    made: list[Any] = [AlwaysTrue()]
    rows = table.scan(limit=3).to_arrow()
    for name in rows.schema.names:
        made += [IsNull(name), NotNull(name)]
        for value in {str(value): value for value in rows[name].to_pylist()}.values():
            if isinstance(value, (int, float, str)) and not isinstance(value, bool):
                made += [EqualTo(name, value), LessThan(name, value), GreaterThanOrEqual(name, value), Not(LessThan(name, value))]
    return made


def shown(tasks: Any) -> list[Any]:
    return [(repr(task), [at.key_metadata and at.key_metadata.reveal() for at in (task, *task.deletes)]) for task in tasks]


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", TABLES)
def test_both_ways_give_the_same_tasks(name: str, caplog: pytest.LogCaptureFixture) -> None:
    table = icelock.StaticTable.from_metadata(metadata_location(name), catalog_properties(name))
    caplog.set_level(logging.DEBUG, logger="icelock.plan")
    found = 0
    for row_filter in todays(f"plans of {name}", filters(table), 3, always=[0]):
        scan = table.scan(row_filter=row_filter)
        build = TaskBuilder(scan._manifest_planner.schemas).build
        with patch("icelock.plan.planner.columns_pay", lambda _: False):
            wanted = shown(build(task) for task in scan.plan_files())
        with patch("icelock.plan.columnar._FEW_OF_ONE", 0):
            assert shown(build(task) for task in scan.plan_files()) == wanted, row_filter
            assert shown(scan.scan_tasks()) == wanted, row_filter
        found += len(wanted)
    assert not caplog.messages, "Java's manifests are read as columns"
    assert found or name == "empty"
