"""Operations step by step, without Spark's processes: conflicts, failures between the steps, and what each step's pickle holds."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchNamespaceError, TableAlreadyExistsError, ValidationException
from pyspark import cloudpickle
from pyspark.sql import types as sp

from icelock.errors import CommitError, IntegrityError, PolicyError
from icelock.format.key_metadata import KeyMetadata
from icelock.spark.columns.types import spark_schema
from icelock.spark.driver.new_table import iceberg_schema, partition_spec
from icelock.spark.driver.source import data_source
from icelock.spark.sealed.job import Action, Job, NewTable, Purpose, Staged, peek, put
from icelock.spark.settings.options import TableName
from icelock.spark.task.row_rewrite import RewriteWriter
from icelock.spark.task.write import POSITIONS
from tests.helpers.counting_kms import KEYS
from tests.lakes.sqlite import KEYED, people
from tests.spark.in_process import TABLE, RewriteRun, as_task, delete_job, merge_job, paths, settings, source, told

ROWS = sp.StructType(
    [sp.StructField("id", sp.LongType()), sp.StructField("name", sp.StringType()), sp.StructField("city", sp.StringType())]
)
LINEAGE = ("_row_id", *POSITIONS)


@pytest.fixture(autouse=True)
def driver_folder(tmp_path, monkeypatch):
    """A temporary folder of the driver for one test."""
    folder = tmp_path / "driver"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def make(lake, *starts, **properties):
    table = lake.catalog().create_table("db.t", people().schema, properties={**KEYED, **properties})
    for start in starts or (0,):
        table.append(people(start))
    return table


def ids(lake):
    return sorted(lake.catalog().load_table("db.t").scan().to_arrow().column("id").to_pylist())


def deks(table):
    return {task.path: KeyMetadata.decode(task.key_metadata.reveal()).dek.reveal() for task in table.scan().scan_tasks()}


def merge(lake, table, attempt=0, **more):
    """Replace the names of rows 3 and 4 and insert row 100, up to the first job's commit; return the job, the writer and its message."""
    job = merge_job(table, **more)
    where = table.scan("id >= 3 and id < 5", selected_fields=("id", "_row_id", "_file", "_pos")).to_arrow().sort_by("id")
    rows = pa.table(
        {
            "id": [3, 4, 100],
            "name": ["new"] * 3,
            "city": ["x"] * 3,
            "_row_id": [*where.column("_row_id").to_pylist(), None],
            POSITIONS[0]: [*where.column("_file").to_pylist(), None],
            POSITIONS[1]: [*where.column("_pos").to_pylist(), None],
        }
    )
    kinds = (sp.LongType(), sp.StringType(), sp.LongType())
    schema = sp.StructType([*ROWS.fields, *(sp.StructField(name, kind) for name, kind in zip(LINEAGE, kinds, strict=True))])
    writer = source(lake, job).writer(schema, False)  # noqa: FBT003 - Spark's signature
    with as_task(0, attempt):
        return job, writer, writer.write(iter(rows.to_batches()))


def rows_with_nulls(start):
    """Ten rows; the fourth and the eighth have no name."""
    names = [None if i in {3, 7} else f"canary-{i:05d}" for i in range(10)]
    return people(start).set_column(1, "name", pa.array(names, pa.string()))


def state(table):
    """Return the rows with their lineage, and of each file how many rows it has and how many of them its deletes name."""
    rows = table.scan(selected_fields=("id", "_row_id", "_last_updated_sequence_number")).to_arrow().sort_by("id").to_pylist()
    files = [(task.record_count, *(delete.record_count for delete in task.deletes)) for task in table.scan().scan_tasks()]
    return [tuple(row.values()) for row in rows], sorted(files)


@pytest.mark.parametrize(("mode", "files"), [("copy-on-write", [(1,), (3,)]), ("merge-on-read", [(10, 7), (10, 9)])])
def test_tasks_and_plain_python_make_the_same_of_a_file(lake, mode, files):
    """A file that goes by metadata, rows that the filter leaves undecided, some rows, and the last live rows of a file."""
    for name in ("db.t", "db.plain"):
        made = lake.catalog().create_table(name, people().schema, properties={**KEYED, "write.delete.mode": mode})
        for start in (0, 10, 20, 30):
            made.append(rows_with_nulls(start))
    for row_filter in ("id < 10", "name != 'canary-00004'", "id = 14 or (name is null and id > 30)", "id = 13 or id = 17"):
        table, plain = (lake.catalog().load_table(name) for name in ("db.t", "db.plain"))
        run = RewriteRun(lake, delete_job(table, row_filter, merge_on_read=mode == "merge-on-read"))
        run.commit(run.run())
        plain.delete(row_filter)
        table, plain = (lake.catalog().load_table(name) for name in ("db.t", "db.plain"))
        assert state(table) == state(plain)
    # Ten rows of a file went by metadata, 7 of 10 of each other one by name (two names are null), then 14, 33 and 37, then 13 and 17.
    assert state(table) == ([(23, 23, 3), (24, 24, 3), (27, 27, 3), (34, 34, 4)], files)


@pytest.mark.parametrize("merge_on_read", [False, True])
def test_a_delete_step_by_step(lake, merge_on_read):
    table = make(lake, 0, 10, 20)
    run = RewriteRun(lake, delete_job(table, "id >= 5 and id < 25", merge_on_read=merge_on_read))
    assert sorted(len(split) for split in run.splits) == [1, 1]  # the file of 10 to 19 goes by metadata alone
    messages = run.run()
    run.commit(messages)
    assert ids(lake) == [*range(5), *range(25, 30)]
    with pytest.raises(CommitError, match="the write ended before"):
        run.commit(messages)


@pytest.mark.parametrize("merge_on_read", [False, True])
def test_an_upsert_step_by_step(lake, driver_folder, merge_on_read):
    table = make(lake, 0, 10)
    job, writer, message = merge(lake, table, merge_on_read=merge_on_read)
    writer.commit([message])
    if not merge_on_read:
        assert [snapshot.summary.operation.value for snapshot in lake.catalog().load_table("db.t").snapshots()] == ["append", "append"]
        (staged,) = driver_folder.glob("icelock-job-*/staged")
        assert (staged.stat().st_mode & 0o777, staged.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        run = RewriteRun(lake, job)
        assert sum(len(split) for split in run.splits) == 1
        run.commit(run.run())
    assert ids(lake) == [*range(20), 100]
    got = lake.catalog().load_table("db.t").scan("name == 'new'", selected_fields=("id", "_row_id")).to_arrow().sort_by("id").to_pylist()
    assert [row["_row_id"] for row in got[:2]] == [3, 4]
    assert len(lake.catalog().load_table("db.t").snapshots()) == 3


def test_rows_that_others_append_meanwhile_are_a_conflict_when_serializable(lake):
    table = make(lake)
    for level, refused in (("serializable", True), ("snapshot", False)):
        table.transaction().set_properties({"write.delete.isolation-level": level}).commit_transaction()
        table = lake.catalog().load_table("db.t")
        run = RewriteRun(lake, delete_job(table, "id = 3 or id = 53 or id = 63" if refused else "id = 3 or id = 63"))
        messages = run.run()
        table.append(people(50 if refused else 60))
        before = lake.files()
        if refused:
            written = run.paths(messages)
            with pytest.raises(ValidationException):
                run.commit(messages)
            assert set(before) - set(lake.files()) == {f"db/t/data/{Path(path).name}" for path in written}
            assert ids(lake) == [*range(10), *range(50, 60)]
        else:
            run.commit(messages)
            assert ids(lake) == [*range(3), *range(4, 10), *range(50, 70)]  # the delete was planned before row 63 came


@pytest.mark.parametrize("merge_on_read", [False, True])
def test_a_file_that_another_writer_changed_is_a_conflict(lake, merge_on_read):
    table = make(lake, 0, 10, **{"write.delete.isolation-level": "snapshot"})
    run = RewriteRun(lake, delete_job(table, "id = 3", merge_on_read=merge_on_read))
    messages = run.run()
    table.delete("id = 4")
    before = lake.files()
    with pytest.raises(ValidationException, match="reload the table and retry"):
        run.commit(messages)
    assert set(lake.files()) <= set(before)
    assert ids(lake) == [*range(4), *range(5, 20)]


def test_a_change_of_other_files_is_no_conflict(lake):
    """The commit is made on what the other writer left; no task runs again."""
    table = make(lake, 0, 10)
    run = RewriteRun(lake, delete_job(table, "id = 3"))
    messages = run.run()
    table.delete("id = 13")
    run.commit(messages)
    assert ids(lake) == [*range(3), *range(4, 13), *range(14, 20)]


def test_a_table_of_the_same_name_is_not_changed(lake):
    table = make(lake)
    run = RewriteRun(lake, delete_job(table, "id = 3"))
    messages = run.run()
    written = run.paths(messages)
    lake.catalog().drop_table("db.t")
    make(lake)
    with pytest.raises(CommitError, match="was replaced by another one"):
        run.commit(messages)
    assert ids(lake) == [*range(10)]
    with pytest.raises(CommitError, match="was replaced by another one"):
        source(lake, delete_job(table, "id = 3")).reader(None)
    assert not any(f"db/t/data/{Path(path).name}" in lake.files() for path in written)


def test_an_upsert_whose_second_job_fails_leaves_no_file(lake):
    table = make(lake)
    before = lake.files()
    job, writer, message = merge(lake, table)
    writer.commit([message])
    run = RewriteRun(lake, job)
    run.abort([*run.run(), None])
    assert peek(job) is not None
    source(lake, replace(job, action=Action.DISCARD)).schema()
    assert lake.files() == before
    assert ids(lake) == [*range(10)]


def test_an_upsert_whose_second_job_never_ran_leaves_no_file(lake):
    table = make(lake)
    before = lake.files()
    job, writer, message = merge(lake, table)
    writer.commit([message])
    assert len(lake.files()) == len(before) + 1
    source(lake, replace(job, action=Action.DISCARD)).schema()
    assert lake.files() == before
    source(lake, replace(job, action=Action.DISCARD)).schema()  # again: nothing is there to do


def test_a_delete_whose_tasks_lost_a_file_is_not_committed(lake):
    table = make(lake, 0, 10)
    before = lake.files()
    run = RewriteRun(lake, delete_job(table, "id in (3, 13)"))
    messages = run.run()
    with pytest.raises(CommitError, match="looked into other files than the plan has"):
        run.commit(messages[:1])
    assert lake.files() == before
    assert ids(lake) == [*range(20)]


@pytest.mark.parametrize("purpose", [Purpose.MERGE, Purpose.OVERWRITE])
def test_a_second_job_without_the_first_ones_rows_removes_nothing(lake, purpose):
    table = make(lake)
    before = lake.files()
    job = replace(delete_job(table, "id < 5"), purpose=purpose)
    with pytest.raises(CommitError, match="is gone, so nothing is committed"):
        RewriteRun(lake, job)
    writer = source(lake, job).writer(None, False)  # noqa: FBT003 - Spark's signature
    with pytest.raises(CommitError, match="is gone, so nothing is committed"):
        writer.commit([writer.write(iter([]))])
    assert lake.files() == before
    assert ids(lake) == [*range(10)]


def test_what_attempts_of_the_first_job_left_goes_with_the_commit_of_the_second(lake):
    table = make(lake)
    job, writer, message = merge(lake, table, attempt=1)
    left = table.location().removeprefix("file://") + f"/data/00000-0-{job.operation_id}-00009.parquet"
    Path(left).write_bytes(b"of an attempt that was killed")
    writer.commit([message])
    run = RewriteRun(lake, job)
    run.commit(run.run())
    assert not Path(left).exists()
    assert ids(lake) == [*range(10), 100]


def test_a_lost_message_of_the_second_job_removes_the_files_of_both(lake):
    table = make(lake)
    before = lake.files()
    job, writer, message = merge(lake, table)
    writer.commit([message])
    run = RewriteRun(lake, job)
    with pytest.raises(CommitError, match="expected the files of"):
        run.commit([*run.run(), None])
    assert lake.files() == before
    assert ids(lake) == [*range(10)]


def test_what_travels_holds_only_keys_of_its_own_files(lake):
    """C-31, C-32: neither reader nor writer has a key of a file, and a split has those of its files only."""
    table = make(lake, 0, 10, 20)
    run = RewriteRun(lake, delete_job(table, "name in ('canary-00003', 'canary-00013')"))
    by_path = deks(table)
    secrets = [*KEYS.values(), *by_path.values()]
    for sent in (run.reader, run.writer):
        assert not any(secret in sent for secret in secrets)
        assert b"encryption.kms" not in sent
        assert b"sqlite:" not in sent
    for split in run.splits:
        sent = cloudpickle.dumps(split)
        own = {task.path for task in split.tasks}
        assert {path for path, dek in by_path.items() if dek in sent} == own
        assert "canary" not in repr(split)
    messages = run.run()
    run.commit(messages)
    assert ids(lake) == sorted(set(range(30)) - {3, 13})


def test_a_job_shows_and_logs_nothing(lake):
    table = make(lake)
    job = delete_job(table, "name = 'canary-00003'")
    given = settings(lake)
    sealed = job.seal(given)
    assert job.key.hex() not in repr(job)
    assert "canary" not in sealed
    assert Job.open(given, sealed) == job
    assert job.seal(given) != sealed
    assert job.key not in cloudpickle.dumps(job.recipient.sender)
    for wrong in (replace(given, session_key=bytes(32)), replace(given, session_key=b"")):
        with pytest.raises(PolicyError, match="in the session that uses it"):
            Job.open(wrong, sealed)
    for text in ("", "bm90aGluZw==", "no base64 at all", sealed[:-8]):
        with pytest.raises(PolicyError, match="in the session that uses it"):
            Job.open(given, text)


def test_what_is_staged_is_sealed(lake, driver_folder):
    table = make(lake)
    job, writer, message = merge(lake, table)
    (written,) = told(writer, message)
    writer.commit([message])
    (staged,) = driver_folder.glob("icelock-job-*/staged")
    content = staged.read_bytes()
    (file,) = written.files
    assert KeyMetadata.decode(file.key_metadata).dek.reveal() not in content
    assert b"parquet" not in content
    with pytest.raises(IntegrityError):
        peek(replace(job, key=bytes(32)))
    with pytest.raises(FileExistsError):
        put(job, Staged(written=written, keks=()))
    source(lake, replace(job, action=Action.DISCARD)).schema()


def test_result_rows_are_sealed(lake):
    table = make(lake)
    run = RewriteRun(lake, delete_job(table, "id = 3"))
    (batch,) = cloudpickle.loads(run.reader).read(run.splits[0])
    writer = cloudpickle.loads(run.writer)
    assert isinstance(writer, RewriteWriter)
    message = writer.write(iter([batch]))
    ((file,),) = (written.files for written in told(writer, message))
    sent = batch.column(0)[0].as_py()
    assert KeyMetadata.decode(file.key_metadata).dek.reveal() not in sent
    assert b"parquet" not in sent
    before = lake.files()
    changed = pa.record_batch([pa.array([sent[:-1] + bytes([sent[-1] ^ 1])], pa.binary())], names=["result"])
    with pytest.raises(IntegrityError, match="task 0, part 0"):
        run.commit([writer.write(iter([changed]))])
    assert ids(lake) == [*range(10)]
    assert set(before) - set(lake.files()) == {f"db/t/data/{Path(file.file_path).name}"}


@pytest.mark.parametrize(
    ("options", "overwrite", "message"),
    [
        ({"brunch": "x"}, False, "did you mean 'branch'"),
        ({"nonsense": "x"}, False, "known: branch, check-nullability, .*, output-spec-id, overwrite-filter, overwrite-mode, snapshot-prop"),
        ({"distribution-mode": "hash"}, False, "is an option of icelock.spark.write_to"),
        ({"overwrite-filter": "id = 1"}, False, r"needs mode\('overwrite'\)"),
        ({"overwrite-mode": "dynamic"}, False, r"needs mode\('overwrite'\)"),
        ({"overwrite-mode": "both"}, True, "it must be static or dynamic"),
        ({"overwrite-mode": "dynamic", "overwrite-filter": "id = 1"}, True, "excludes overwrite-filter"),
        ({"overwrite-filter": "id =="}, True, "cannot be read"),
        ({"branch": "nope"}, False, "has no branch 'nope'"),
        ({"branch": ""}, False, "option branch is empty"),
        ({"job": "aWNlbG9jaw=="}, False, r"is set only by icelock"),
        ({"encryption.kms-type": "local"}, False, "is a setting of a catalog"),
        ({"encryption.key-id": "keyA"}, False, r"tableProperty\('encryption.key-id', ...\).create\(\)"),
    ],
)
def test_wrong_options_are_refused_at_planning(lake, options, overwrite, message):
    make(lake)
    before = lake.files()
    lake.calls.take()
    with pytest.raises(PolicyError, match=message):
        data_source(settings(lake))(options={"path": TABLE, **options}).writer(ROWS, overwrite)
    assert lake.files() == before
    assert lake.calls.take() == []


def new(action=Action.CREATE, partitioned_by=(), **properties):
    return Job(action=action, table=TableName.parse(TABLE), new_table=NewTable(properties=properties, partitioned_by=partitioned_by))


@pytest.mark.parametrize(
    ("partitioned_by", "message"),
    [
        (("days(nope)",), "it has no column 'nope'"),
        (("days(name)",), "column 'name' is string"),
        (("bucket(0, id)",), "is not a partition transform"),
        (("bucket(²,id)",), "is not a partition transform"),
        (("bucket(id)",), "is not a partition transform"),
        (("zorder(id)",), "is not a partition transform"),
        (("days()",), "it has no column ''"),
    ],
)
def test_partitionings_that_cannot_be_are_refused(lake, partitioned_by, message):
    with pytest.raises(PolicyError, match=message):
        source(lake, new(partitioned_by=partitioned_by, **KEYED)).writer(ROWS, False)  # noqa: FBT003 - Spark's signature
    assert lake.files() == {}
    assert not lake.catalog().table_exists("db.t")


def test_partitionings_have_javas_names():
    kinds = {"id": sp.LongType(), "ts": sp.TimestampType(), "d": sp.DateType(), "s": sp.StringType()}
    schema = iceberg_schema(sp.StructType([sp.StructField(name, kind) for name, kind in kinds.items()]))
    texts = ("s", "years(ts)", "month(d)", "days(ts)", "HOURS(ts)", "bucket(16, id)", "truncate(4, s)", "`d`")
    spec = partition_spec(schema, texts, table="t")
    assert [(field.source_id, str(field.transform), field.name) for field in spec.fields] == [
        (4, "identity", "s"),
        (2, "year", "ts_year"),
        (3, "month", "d_month"),
        (2, "day", "ts_day"),
        (2, "hour", "ts_hour"),
        (1, "bucket[16]", "id_bucket"),
        (4, "truncate[4]", "s_trunc"),
        (3, "identity", "d"),
    ]


def test_new_columns_are_optional_and_keep_their_comments():
    inner = sp.StructType([sp.StructField("x", sp.ShortType(), nullable=False)])
    given = sp.StructType(
        [
            sp.StructField("id", sp.LongType(), nullable=False, metadata={"comment": "the id"}),
            sp.StructField("l", sp.ArrayType(inner, containsNull=False), nullable=False),
            sp.StructField("m", sp.MapType(sp.StringType(), sp.DoubleType(), valueContainsNull=False)),
        ]
    )
    schema = iceberg_schema(given)
    assert [(field.field_id, field.required, field.doc) for field in schema.fields] == [
        (1, False, "the id"),
        (2, False, None),
        (3, False, None),
    ]
    back = spark_schema(schema, table="t")
    assert back["l"].dataType == sp.ArrayType(sp.StructType([sp.StructField("x", sp.IntegerType())]), containsNull=True)
    assert back["m"].dataType == sp.MapType(sp.StringType(), sp.DoubleType(), valueContainsNull=True)


@pytest.mark.parametrize(
    ("table", "properties", "error", "message"),
    [
        (TABLE, {}, PolicyError, "creates encrypted tables only"),
        (TABLE, {"encryption.keyid": "keyA"}, PolicyError, "creates encrypted tables only"),
        ("test.nope.t", KEYED, NoSuchNamespaceError, "nope"),
        ("test.db.there", KEYED, TableAlreadyExistsError, "already exists"),
        ("elsewhere.db.t", KEYED, PolicyError, "no catalog 'elsewhere'"),
    ],
)
def test_tables_that_cannot_be_made_are_refused(lake, table, properties, error, message):
    lake.catalog().create_table("db.there", people().schema, properties=KEYED)
    before = lake.files()
    job = replace(new(**properties), table=TableName.parse(table))
    with pytest.raises(error, match=message):
        source(lake, job).writer(ROWS, False)  # noqa: FBT003 - Spark's signature
    assert lake.files() == before


def test_of_two_that_make_a_table_one_does(lake):
    sent = [source(lake, new(**KEYED)).writer(ROWS, False) for _ in range(2)]  # noqa: FBT003 - Spark's signature
    messages = [writer.write(iter(people(start).to_batches())) for start, writer in zip((0, 50), sent, strict=True)]
    written = paths(sent[1], messages[1])
    sent[0].commit([messages[0]])
    before = lake.files()
    with pytest.raises(TableAlreadyExistsError):
        sent[1].commit([messages[1]])
    assert ids(lake) == [*range(10)]
    assert set(before) - set(lake.files()) == {f"db/t/data/{Path(path).name}" for path in written}


def test_a_replacement_of_a_table_that_changed_meanwhile(lake):
    """Other rows are replaced with the rest; other columns would give the written files wrong ids."""
    make(lake)
    first, second = (source(lake, new(Action.REPLACE)).writer(ROWS, False) for _ in range(2))  # noqa: FBT003 - Spark's signature
    messages = [writer.write(iter(people(start).to_batches())) for start, writer in ((100, first), (200, second))]
    written = paths(second, messages[1])
    lake.catalog().load_table("db.t").append(people(10))
    first.commit([messages[0]])
    assert ids(lake) == [*range(100, 110)]
    with lake.catalog().load_table("db.t").update_schema() as update:
        update.delete_column("city").add_column("town", sp_type())
    with lake.catalog().load_table("db.t").update_schema() as update:
        update.rename_column("name", "called")
    before = lake.files()
    with pytest.raises(CommitError, match="other columns"):
        second.commit([messages[1]])
    assert set(before) - set(lake.files()) == {f"db/t/data/{Path(path).name}" for path in written}
    assert ids(lake) == [*range(100, 110)]


def sp_type():
    from pyiceberg.types import StringType  # noqa: PLC0415

    return StringType()
