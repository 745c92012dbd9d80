"""``table.maintenance.optimize``: what is found in tables whose numbers are known, what is done about it, in which order and time."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from icelock.errors import PolicyError
from icelock.maintenance import OptimizeStep, Outcome, optimize_tables
from icelock.table.maintenance.compaction.compact import Compacted
from icelock.table.maintenance.optimize import Budget
from icelock.table.maintenance.optimize_policy import OptimizePolicy
from icelock.table.maintenance.optimize_steps import STEPS, size
from tests.helpers.table_model import delete_entries, rows_of, verified
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.unit.table.test_compact import MOR, data_files, make
from tests.unit.table.test_older_deletes import commit, equality, set_mode

DAY = 86_400_000
NAMES = ["compact", "rewrite-deletes", "rewrite-manifests", "expire", "leftovers", "keys"]
NOTHING = dict.fromkeys(NAMES, Outcome.NOTHING)
ONLY_DELETES = {"compact": "false", "rewrite-manifests": "false", "expire": "false", "leftovers": "false"}


class Clock:
    """A clock that goes on by ``step`` seconds each time that it is asked."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 1_000.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def outcomes(done: Any) -> dict[str, Outcome]:
    return {step.name: step.outcome for step in done.steps}


def step_of(done: Any, name: str) -> OptimizeStep:
    return next(step for step in done.steps if step.name == name)


def left_over(table: Any, *, days: int) -> Path:
    path = Path(table.location()) / "data" / f"left-{days}.parquet"
    path.write_bytes(b"PARE" * 3)
    when = path.stat().st_mtime - days * 86_400
    os.utime(path, (when, when))
    return path


def test_an_empty_table_asks_for_nothing(lake: TestLake) -> None:
    done = make(lake, 0).maintenance.optimize()
    assert outcomes(done) == NOTHING
    assert (done.failed, done.left, done.dry_run) == (False, (), False)


def test_all_of_it_in_its_order(lake: TestLake) -> None:
    """Twelve files of ten rows: 12 to 1, then their 13 manifests to 1, then 13 snapshots of 14 go, and the leftover of four days."""
    properties = {"history.expire.max-snapshot-age-ms": "1", "icelock.optimize.min-manifests": "5"}
    table = make(lake, 12, **properties)
    rows = rows_of(table)
    old, young = left_over(table, days=4), left_over(table, days=2)
    files = lake.files()
    plan = table.maintenance.optimize(dry_run=True)
    assert lake.files() == files
    would = {**NOTHING, "compact": Outcome.WOULD, "rewrite-manifests": Outcome.WOULD, "expire": Outcome.WOULD, "leftovers": Outcome.WOULD}
    assert outcomes(plan) == would
    bytes_of_all = sum(entry.data_file.file_size_in_bytes for entry in data_files(table))
    assert step_of(plan, "compact").found == f"12 data files of {size(bytes_of_all)} that would be 1"
    assert step_of(plan, "rewrite-manifests").found == "12 manifests, of which 12 would be 1"
    assert step_of(plan, "expire").found.startswith("11 of 12 snapshots, 0 branches and tags")
    assert step_of(plan, "leftovers").found == "1 files of 12 bytes that nothing reaches"
    told: list[str] = []
    done = table.maintenance.optimize(told=lambda step: told.append(step.name))
    assert told == NAMES
    assert [step.name for step in done.steps if step.outcome is Outcome.DONE] == ["compact", "rewrite-manifests", "expire", "leftovers"]
    assert step_of(done, "compact").result.rewritten_files == 12
    assert len(step_of(done, "expire").result.snapshots) == 13, "and those of the two steps before, but the last"
    assert [Path(file.path).name for file in step_of(done, "leftovers").result.files] == [old.name]
    assert young.exists()
    assert rows_of(table) == rows
    assert (len(data_files(table)), len(table.inspect.manifests()), len(table.snapshots())) == (1, 1, 1)
    young.unlink()
    verified(table)
    assert outcomes(table.maintenance.optimize()) == NOTHING


def test_deleted_rows_are_taken_out_from_a_tenth_on(lake: TestLake) -> None:
    table = make(lake, 4, **MOR)  # fewer files than are compacted
    table.delete("id in (0, 1)")
    table.delete("id = 20")
    done = table.maintenance.optimize(options=ONLY_DELETES)
    assert step_of(done, "rewrite-deletes").found == "3 of 40 rows deleted by position, 0 delete files that are no vectors, 4 data files"
    assert outcomes(done) == {**dict.fromkeys(NAMES, Outcome.OFF), "rewrite-deletes": Outcome.NOTHING, "keys": Outcome.NOTHING}
    table.delete("id = 21")
    done = table.maintenance.optimize(options=ONLY_DELETES)
    assert step_of(done, "rewrite-deletes").outcome is Outcome.DONE
    assert step_of(done, "rewrite-deletes").result.rewritten_files == 2
    assert delete_entries(table) == []
    assert [row["id"] for row in table.scan().to_arrow().sort_by("id").to_pylist()] == [n for n in range(40) if n not in (0, 1, 20, 21)]
    table.delete("id = 30")
    more = {**ONLY_DELETES, "deleted-rows-ratio": "0.02"}
    assert step_of(table.maintenance.optimize(options=more), "rewrite-deletes").outcome is Outcome.DONE, "1 of 36"


def test_delete_files_that_are_no_vectors_become_some(lake: TestLake) -> None:
    table = make(lake, 4)
    commit(table, equality(table, "e1", [4, 7]))
    set_mode(table, "merge-on-read")
    few = {**ONLY_DELETES, "delete-files-ratio": "0.3"}
    assert step_of(table.maintenance.optimize(options=few), "rewrite-deletes").outcome is Outcome.NOTHING, "1 for 4 data files"
    done = step_of(table.maintenance.optimize(options=ONLY_DELETES), "rewrite-deletes")
    assert (done.outcome, done.result.vectors) == (Outcome.DONE, 1)
    assert {entry.data_file.file_format.value for entry in delete_entries(table)} == {"PUFFIN"}


def test_no_step_begins_that_is_not_likely_to_end_in_time(lake: TestLake) -> None:
    table = make(lake, 12, **{"history.expire.max-snapshot-age-ms": "1"})
    whole = timedelta(seconds=1.2)
    done = table.maintenance.optimize(within=whole, clock=Clock())
    # A second each, and 20 MB, 20 manifests, 20 snapshots or 1,000 files in one more: the 13 manifests that are there by then take 1.65 s,
    # the 12 snapshots before the compaction's 1.6 s, and leftovers of 1 + 4 * 13 + 1 files 1.05 s.
    assert outcomes(done)["compact"] is Outcome.DONE
    assert step_of(done, "expire").why.endswith("it would take about 2 s, and 1 s are left")
    assert done.left == ("rewrite-manifests", "expire")
    assert not done.failed
    assert len(table.snapshots()) == 13
    assert "expire" not in table.maintenance.optimize(within=timedelta(hours=1), clock=Clock()).left
    late = table.maintenance.optimize(within=timedelta(seconds=1), clock=Clock(step=2))
    assert list(late.left) == NAMES, "the time was over before the first"


def test_the_speed_of_a_step_is_taken_from_the_one_before() -> None:
    clock, compact = Clock(), STEPS[0]
    budget = Budget(within=timedelta(seconds=100), clock=clock)
    assert budget.needs(compact, 200 << 20) == 11.0, "a second, and 20 MiB a second"
    budget.measured(compact, 10 << 20, 5.0)
    assert budget.needs(compact, 200 << 20) == 101.0, "2 MiB a second"
    clock.now += 60
    assert budget.left == 40.0
    with pytest.raises(PolicyError, match="above 0"):
        Budget(within=timedelta(0), clock=clock)
    for wrong in (3, "2h"):
        with pytest.raises(PolicyError, match=r"it must be a timedelta, such as timedelta\(hours=2\)"):
            Budget(within=wrong, clock=clock)  # type: ignore[arg-type]  # what an outsider may give


def test_ages_are_said_as_the_options_are_written(lake: TestLake) -> None:
    [step] = (step for step in make(lake).maintenance.optimize(dry_run=True).steps if step.name == "leftovers")
    assert step.why == "none is older than 3d"


def test_after_a_failure_nothing_is_deleted(lake: TestLake) -> None:
    """A data file is damaged: older snapshots may be what is needed now."""
    table = make(lake, 6, **{"history.expire.max-snapshot-age-ms": "1"})
    old = left_over(table, days=4)
    place = Path(data_files(table)[0].data_file.file_path.removeprefix("file://"))
    content = bytearray(place.read_bytes())
    content[len(content) // 2] ^= 1
    place.write_bytes(content)
    done = table.maintenance.optimize()
    assert outcomes(done)["compact"] is Outcome.FAILED
    assert "IntegrityError" in step_of(done, "compact").why
    assert outcomes(done)["expire"] is outcomes(done)["leftovers"] is Outcome.NOT_BEGUN
    assert done.failed
    assert old.exists()
    assert len(table.snapshots()) == 6


def test_what_other_writers_or_storage_kept_from_being_done_is_said(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(lake, 6)
    for result, outcome, more in (
        (Compacted(conflicted_files=2), Outcome.DONE, "; 2 files stay, since other writers touched them each time"),
        (Compacted(failed_files=1), Outcome.IN_PART, ""),
    ):
        steps = (replace(STEPS[0], do=lambda *_, result=result: result),)
        monkeypatch.setattr("icelock.table.maintenance.optimize.STEPS", steps)
        done = table.maintenance.optimize()
        assert (done.steps[0].outcome, done.failed) == (outcome, outcome is Outcome.IN_PART)
        assert done.steps[0].why == "they are far from the target size, or have many deleted rows" + more


def test_a_table_whose_files_are_others_too_deletes_none(lake: TestLake) -> None:
    table = make(lake, 6, **{"gc.enabled": "false", "history.expire.max-snapshot-age-ms": "1"})
    done = table.maintenance.optimize()
    assert [outcomes(done)[name] for name in ("compact", "expire", "leftovers")] == [Outcome.DONE, Outcome.NOTHING, Outcome.NOTHING]
    assert step_of(done, "expire").why == step_of(done, "leftovers").why == "gc.enabled is false"


def test_the_key_of_new_snapshots_is_due_after_730_days(lake: TestLake) -> None:
    table = make(lake, 1)
    made = int(next(key.properties["KEY_TIMESTAMP"] for key in table.metadata.encryption_keys if key.encrypted_by_id == "keyA"))
    for days, why in (
        (0, "not soon"),
        (699, "not soon"),
        (700, "soon: the first"),
        (729, "soon: the first"),
        (730, "the next write makes"),
    ):
        table.encryption.clock = lambda days=days: made + days * DAY + 1
        done = table.maintenance.optimize(dry_run=True)
        assert step_of(done, "keys").why.startswith(why), days
        assert step_of(done, "keys").outcome is Outcome.NOTHING


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"compct": "false"}, r"did you mean '(icelock\.optimize\.)?compact'"),
        ({"compact": "no"}, "must be true or false"),
        ({"deleted-rows-ratio": "0"}, "above 0 and at most 1"),
        ({"delete-files-ratio": "many"}, "above 0 and at most 1"),
        ({"min-manifests": "0"}, "at least 1"),
        ({"leftovers-older-than": "23h"}, "at least one day"),
        ({"leftovers-older-than": "3"}, "no span of time"),
        ({"target-file-size-bytes": "large"}, "target-file-size-bytes is 'large'"),
        ({"sort-by": "id", "z-order-by": "id,n"}, "exclude each other"),
    ],
)
def test_what_no_policy_says_is_refused_before_anything_is_done(lake: TestLake, given: dict[str, str], message: str) -> None:
    table = make(lake, 6)
    with pytest.raises(PolicyError, match=message):
        table.maintenance.optimize(options=given)
    with pytest.raises(PolicyError, match=message):
        OptimizePolicy.of({f"icelock.optimize.{name}": value for name, value in given.items()})
    properties = {f"icelock.optimize.{name}": value for name, value in given.items()}
    with pytest.raises(PolicyError, match=message), table.transaction() as transaction:
        transaction.set_properties(properties)
    with pytest.raises(PolicyError, match=message):
        lake.catalog().create_table("db.other", table.schema(), properties={**table.properties, **properties})
    assert len(data_files(table)) == 6


def test_the_policy_is_in_the_table_and_a_misspelt_one_is_refused(lake: TestLake) -> None:
    table = make(lake, 6, **{"icelock.optimize.compact": "false"})
    assert outcomes(table.maintenance.optimize())["compact"] is Outcome.OFF
    assert outcomes(table.maintenance.optimize(options={"compact": "true"}, dry_run=True))["compact"] is Outcome.WOULD
    with pytest.raises(PolicyError, match=r"did you mean 'icelock\.optimize\.compact'"), table.transaction() as transaction:
        transaction.set_properties({"icelock.optimize.compakt": "false"})
    with table.transaction() as transaction:
        transaction.remove_properties("icelock.optimize.compact")
        transaction.set_properties({"icelock.optimize.sort-by": "id desc"})
    assert outcomes(table.maintenance.optimize())["compact"] is Outcome.DONE
    assert table.scan().to_arrow()["id"].to_pylist() == list(range(59, -1, -1))


def test_all_tables_of_a_catalog_and_one_that_fails_stops_none(lake: TestLake) -> None:
    catalog = lake.catalog()
    catalog.create_namespace("other")
    for name in ("db.a", "db.b", "other.c"):
        table = catalog.create_table(name, people().schema, properties=KEYED)
        for start in range(0, 60, 10):
            table.append(people(start))
    catalog.create_table("db.plain", people().schema, properties={"icelock.plain": "true"})
    location = Path(catalog.load_table("db.a").metadata_location.removeprefix("file://"))
    location.write_bytes(b"{}")
    catalog = lake.catalog()
    told: list[tuple[str, str]] = []
    done = optimize_tables(catalog, told=lambda table, step: told.append((table, step.name)))
    assert [table.table for table in done] == ["db.a", "db.b", "db.plain", "other.c"]
    assert [table.failed for table in done] == [True, False, False, False]
    assert [table.steps[0].outcome for table in done] == [Outcome.FAILED, Outcome.DONE, Outcome.NOT_BEGUN, Outcome.DONE]
    assert told[:2] == [("db.a", "load"), ("db.b", "compact")]
    assert [table.table for table in optimize_tables(catalog, "other", dry_run=True)] == ["other.c"]
    assert [table.table for table in optimize_tables(catalog, "db.b", dry_run=True)] == ["db.b"]
    left = optimize_tables(catalog, "db", within=timedelta(seconds=1), clock=Clock(step=2))
    assert {table.left for table in left} == {("load",)}, "the time is one for all tables"
    with pytest.raises(PolicyError, match="no table and no namespace nowhere"):
        optimize_tables(catalog, "nowhere")


def test_namespaces_below_one_belong_to_it_and_those_that_begin_alike_do_not(lake: TestLake) -> None:
    catalog = lake.catalog()
    names = ("db.t", "db.inner.t", "db.inner.deep.t", "db2.t", "db2.inner.t", "d.t")
    for name in names:
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        catalog.create_table(name, people().schema, properties=KEYED)
    assert [table.table for table in optimize_tables(catalog, "db", dry_run=True)] == ["db.inner.deep.t", "db.inner.t", "db.t"]
    assert [table.table for table in optimize_tables(catalog, "db.inner", dry_run=True)] == ["db.inner.deep.t", "db.inner.t"]
    assert [table.table for table in optimize_tables(catalog, dry_run=True)] == sorted(names)


def test_sizes_for_people() -> None:
    assert [size(number) for number in (0, 999, 1_000, 1_550_000, 2_000_000_000)] == ["0 bytes", "999 bytes", "1.0 kB", "1.6 MB", "2.0 GB"]
