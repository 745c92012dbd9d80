"""Random histories: the changes between any two snapshots, on the model's rows at the first, give the model's rows at the second."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.changelog import COMES, GOES, check_applied, check_pairs, of_types
from tests.helpers.table_model import arrow
from tests.helpers.turns import todays
from tests.unit.table.test_histories import NUMBER, SPECS, STEP, History

UPSERT = st.tuples(
    st.just("upsert"), st.lists(st.tuples(NUMBER, st.sampled_from([None, 0, 1, 2])), max_size=6, unique_by=lambda one: one[0])
)
AGAIN = st.tuples(st.just("again"), st.integers(0, 30))


class Changing(History):
    """A history with updates, and with rows that are deleted and written again as they were."""

    used = 0

    def fresh(self, count: int) -> list[Any]:
        self.used += count
        return super().fresh(count)

    def upsert(self, given_: list[tuple[int, int | None]]) -> None:
        rows = [(number, n, f"upserted {n}") for number, n in given_ if number < self.used]
        changed = [one for one in rows if self.model.rows.get(one[0], (None, 0))[0] != one]
        if rows:
            self.table.upsert(arrow(rows), join_cols=["id"])
        for one in rows:
            if one[0] not in self.model.rows:
                self.model.row_ids.pop(one[0], None)
        if changed:
            self.model.add(changed, self.table)

    def again(self, below: int) -> None:
        """Rows keep their values and get new row ids."""
        rows = [one for one, _ in self.model.rows.values() if one[0] < below]
        self.table.overwrite(arrow(rows), overwrite_filter=f"id < {below}")
        for one in rows:
            self.model.row_ids.pop(one[0], None)
        self.model.add(rows, self.table)


@pytest.mark.turns(2)
@pytest.mark.parametrize("spec", todays("specs of histories of changes", sorted(SPECS), 1))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(st.one_of(STEP, STEP, UPSERT, UPSERT, AGAIN), min_size=3, max_size=9),
    mode=st.sampled_from(["copy-on-write", "merge-on-read"]),
    data=st.data(),
)
def test_changes_take_the_rows_of_one_snapshot_to_another(spec: str, mode: str, steps: list[tuple[str, Any]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = Changing(Path(folder), spec, {f"write.{what}.mode": mode for what in ("delete", "update", "merge")})
        history.step("append", 20)
        for name, given_ in steps:
            history.step(name, given_)
        table = history.table
        line = [one.snapshot_id for one in table.snapshots()]
        at = {number: as_rows(history.model.snapshots[number]) for number in line}
        start, end = sorted(data.draw(st.tuples(*(st.sampled_from(range(len(line))),) * 2)))
        between = {"start_snapshot_id": line[start], "end_snapshot_id": line[end]}
        check(table, at[line[start]], at[line[end]], between)
        check(table, [], at[line[end]], {"end_snapshot_id": line[end]})


def check(table: Any, before: list[Any], after: list[Any], between: dict[str, int]) -> None:
    lineage = table.changes(**between, selected_fields=("id", "n", "s", "_row_id")).to_arrow()
    check_pairs(lineage)
    check_applied(before, lineage.drop_columns("_row_id"), after)
    for how in ({"updates": False}, {"identifier_fields": ["id"]}):
        check_applied(before, table.changes(**between, **how).to_arrow(), after)
    for how in ({}, {"updates": False}, {"identifier_fields": ["id"]}):
        net = table.changes(**between, net_changes=True, **how).to_arrow()
        goes, comes = of_types(net, GOES), of_types(net, COMES)
        assert not goes & comes, "a row is as it was, and told as a change"
        as_one = net.set_column(net.schema.get_field_index("_change_ordinal"), "_change_ordinal", pc.multiply(net["_change_ordinal"], 0))
        check_applied(before, as_one, after)
        if "identifier_fields" in how:
            listed = [(one["id"], one["_change_type"]) for one in net.to_pylist()]
            assert len({one[0] for one in listed if one[1] in GOES}) == sum(one[1] in GOES for one in listed)
            alone = {one[0] for one in listed if one[1] == "DELETE"} & {one[0] for one in listed if one[1] == "INSERT"}
            assert not alone, "one identifier is a delete and an insert"


def as_rows(rows: list[Any]) -> list[dict[str, Any]]:
    return [dict(zip(("id", "n", "s"), one, strict=True)) for one in rows]
