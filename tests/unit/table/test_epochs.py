"""Batches that are written once, whoever commits in between; which batches a table has is what the test committed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from icelock.errors import PolicyError
from icelock.table.epochs import Epoch, EpochCommittedError
from tests.lakes.sqlite import KEYED

ROW = pa.table({"id": pa.array([1], pa.int64())})


@pytest.fixture
def table(lake):
    return lake.catalog().create_table("db.t", ROW.schema, properties=KEYED)


def staged(table, epoch, branch="main"):
    """Return a transaction with a batch of one row."""
    transaction = table.transaction()
    transaction.append(ROW, snapshot_properties=epoch.summary, branch=branch)
    epoch.stage(transaction, branch)
    return transaction


def write(table, epoch, branch="main"):
    staged(table, epoch, branch).commit_transaction()
    table.refresh()


def count(table):
    return table.refresh().scan().to_arrow().num_rows


def test_java_names_and_one_property_for_each_query(table):
    write(table, Epoch("one", 3))
    write(table, Epoch("two", 0))
    last, current = table.snapshots()[-2:]
    assert last.summary.additional_properties["spark.sql.streaming.queryId"] == "one"  # Java: SparkWrite.BaseStreamingWrite
    assert last.summary.additional_properties["spark.sql.streaming.epochId"] == "3"
    assert table.properties["icelock.stream.one"] == f"3 {last.snapshot_id}"
    assert table.properties["icelock.stream.two"] == f"0 {current.snapshot_id}"
    for number, there in ((3, True), (4, False)):
        assert Epoch("one", number).is_in(table.metadata, "main") == there
    assert not Epoch("three", 0).is_in(table.metadata, "main")


def test_a_batch_of_javas_writer_is_known(table):
    table.append(ROW, snapshot_properties={"spark.sql.streaming.queryId": "q", "spark.sql.streaming.epochId": "7"})
    table.append(ROW)
    assert Epoch("q", 7).is_in(table.metadata, "main")
    assert not Epoch("q", 8).is_in(table.metadata, "main")


def test_a_second_writer_of_the_same_batch_adds_nothing(table, lake):
    """A driver that hung while another one took its place: both have written files, and one commits first."""
    hung = staged(lake.catalog().load_table("db.t"), Epoch("q", 0))
    write(table, Epoch("q", 0))
    files = {name for name in lake.files() if name.endswith(".parquet")}
    with pytest.raises(EpochCommittedError, match="batch 0 of stream q"):
        hung.commit_transaction()
    assert count(table) == 1
    left = {name for name in lake.files() if name.endswith(".parquet")}
    assert len(files - left) == 1, "its file is deleted"


def test_others_commit_in_between_and_the_batch_is_added_once(table, lake):
    late = staged(lake.catalog().load_table("db.t"), Epoch("q", 1))
    write(table, Epoch("other", 0))
    table.append(ROW)
    late.commit_transaction()
    assert count(table) == 3
    assert table.properties["icelock.stream.other"].startswith("0 "), "its mark is not taken away by ours"
    assert Epoch("q", 1).is_in(table.metadata, "main")


def test_the_mark_after_expiry_and_after_a_rollback(table):
    table.append(ROW)
    first = table.current_snapshot().snapshot_id
    write(table, Epoch("q", 5))
    marked = table.current_snapshot().snapshot_id
    table.append(ROW)
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert not Epoch("q", 5).is_in(table.refresh().metadata, "main"), "its rows are not in the branch"
    table.manage_snapshots().set_current_snapshot(marked).commit()
    table.append(ROW)
    table.maintenance.expire_snapshots().by_id(marked).commit()
    assert all("spark.sql.streaming.queryId" not in one.summary.additional_properties for one in table.refresh().snapshots())
    assert Epoch("q", 5).is_in(table.metadata, "main")
    assert not Epoch("q", 6).is_in(table.metadata, "main")


def test_branches(table):
    table.append(ROW)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "side").commit()
    write(table.refresh(), Epoch("q", 0), "side")
    assert Epoch("q", 0).is_in(table.metadata, "side")
    assert not Epoch("q", 0).is_in(table.metadata, "main")


def expired(table):
    """Leave no snapshot whose summary knows a batch: only the property does."""
    table.append(ROW)
    table.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in table.refresh().snapshots()[:-1]]).commit()
    return table.refresh()


def test_a_batch_before_the_last_one_is_an_error_and_is_not_passed_over(table, lake):
    """Spark runs the last batch again, and none before it: the checkpoint is an old one, and what it plans is not what it planned."""
    write(table, Epoch("q", 3))
    for known in (table, expired(table)):
        with pytest.raises(PolicyError, match=r"batch 2 of stream q was to be written, and the table has batch 3.*icelock\.stream\.<id>"):
            Epoch("q", 2).is_in(known.metadata, "main")
    late = staged(lake.catalog().load_table("db.t"), Epoch("q", 4))
    for number in (4, 5):
        write(table, Epoch("q", number))
    with pytest.raises(PolicyError, match="batch 4 of stream q"):
        late.commit_transaction()
    assert count(table) == 1 + 1 + 2


@pytest.mark.parametrize("forget", [False, True])
def test_offsets_are_those_that_the_table_knows(table, forget):
    """Of the batch that runs again, and of the one before the next: also after an expiry. Java's writer leaves no hash."""
    one, two, three = ("1" * 64, "2" * 64, "3" * 64)
    write(table, Epoch("q", 0, one))
    write(table, Epoch("q", 1, two, one))
    if forget:
        expired(table)
    assert Epoch("q", 1, two, one).is_in(table.metadata, "main")
    assert not Epoch("q", 2, three, two).is_in(table.metadata, "main")
    assert not Epoch("q", 3, three, one).is_in(table.metadata, "main"), "a batch in between had no rows"
    for changed in (Epoch("q", 1, three, one), Epoch("q", 2, three, one)):
        with pytest.raises(PolicyError, match="stream q had other offsets when batch 1 was written"):
            changed.is_in(table.metadata, "main")
    for unknown in (Epoch("q", 1), Epoch("q", 2)):
        assert unknown.is_in(table.metadata, "main") == (unknown.number == 1)


@pytest.mark.parametrize("mark", ["", "7", "seven 1", "1 2 3", "\u0663 1", "9" * 5000 + " 1", "-1 5"])
def test_a_mark_that_says_nothing_is_an_error(table, mark):
    with table.transaction() as tx:
        tx.set_properties({"icelock.stream.q": mark})
    with pytest.raises(PolicyError, match=r"table property icelock\.stream\.q is"):
        Epoch("q", 0).is_in(table.refresh().metadata, "main")


@pytest.mark.parametrize(("query", "number"), [("", 0), ("a b", 0), ("x" * 129, 0), (7, 0), ("q", -1), ("q", "0"), ("q", True)])
def test_what_is_no_batch(query, number):
    with pytest.raises(PolicyError):
        Epoch.of(query, number)


def test_only_marks_of_streams_may_have_any_name(table):
    with pytest.raises(PolicyError, match=r"icelock\.streams"), table.transaction() as tx:
        tx.set_properties({"icelock.streams": "1"})
    with table.transaction() as tx:
        tx.set_properties({"icelock.stream.q": "1 2"})
    with table.transaction() as tx:
        tx.remove_properties("icelock.stream.q")
    assert "icelock.stream.q" not in table.refresh().properties
