"""What goes to executors holds no key but its own files', and no setting of a catalog or a KMS (C-31, C-32, C-36).

Nothing is mocked: the pickles searched are those that PySpark's own planning code sends to the JVM.
"""

from __future__ import annotations

import base64
import io
import pickle

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.serializers import CPickleSerializer
from pyspark.sql.worker.plan_data_source_read import write_read_func_and_partitions

from icelock.errors import CommitError, PolicyError
from icelock.format.key_metadata import KeyMetadata
from icelock.kms.memory import MemoryKms
from icelock.secret import SecretBytes
from icelock.spark.columns.types import spark_schema
from icelock.spark.driver.source import SpentSource, data_source
from icelock.spark.settings.session import Settings
from icelock.spark.task.splits import Split
from tests.helpers.counting_kms import KEYS
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.spark.in_process import paths, told

CREDENTIAL = "catalog-password-4711"
FORBIDDEN = ("encryption.kms", "kms.counting", "kms.memory", CREDENTIAL, "sqlite:", "CountingKms", "credential")


def settings(lake: TestLake) -> Settings:
    more = {"credential": CREDENTIAL, "token": CREDENTIAL, "s3.region": "eu-north-1", "icelock.spark.plain-rpc": "warn"}
    return Settings(catalogs={"test": lake.properties(**more)}, parallelism=3)


def written(lake: TestLake):
    """Make a table of three data files and return it."""
    catalog = lake.catalog()
    catalog.create_table("db.t", people().schema, properties=KEYED)
    for start in (0, 10, 20):
        catalog.load_table("db.t").append(people(start))
    return catalog.load_table("db.t")


def keks(table) -> list[bytes]:
    kms = MemoryKms({f"kms.memory.keys.{name}": key.hex() for name, key in KEYS.items()})
    return [kms.unwrap_key(key.encrypted_key_metadata, "keyA") for key in table.metadata.encryption_keys if key.encrypted_by_id == "keyA"]


def deks(table) -> dict[str, bytes]:
    return {task.path: KeyMetadata.decode(task.key_metadata.reveal()).dek.reveal() for task in table.scan().scan_tasks()}


def forms(key: bytes) -> list[bytes]:
    return [key, key.hex().encode(), key.hex().upper().encode(), base64.b64encode(key).rstrip(b"=")]


def assert_clean(sent: bytes, secrets: list[bytes]) -> None:
    for text in FORBIDDEN:
        assert text.encode() not in sent, text
    for secret in secrets:
        assert not any(form in sent for form in forms(secret))


def frames(stream: bytes) -> list[bytes]:
    """Split what a planning process sends: the command, the number of partitions, each partition."""
    buffer = io.BytesIO(stream)

    def number() -> int:
        return int.from_bytes(buffer.read(4), "big", signed=True)

    command = buffer.read(number())
    return [command, *(buffer.read(number()) for _ in range(number()))]


def planned(lake: TestLake, **options: str) -> list[bytes]:
    """Run the three driver processes' steps of a read; return what goes to executors."""
    made = data_source(settings(lake))(options={"path": "test.db.t", **options})
    schema = made.schema()
    arrived = pickle.loads(CPickleSerializer().dumps(made))  # noqa: S301 - our own
    sink = io.BytesIO()
    write_read_func_and_partitions(
        sink, reader=arrived.reader(schema), data_source=arrived, schema=schema, max_arrow_batch_size=10_000, binary_as_bytes=True
    )
    return frames(sink.getvalue())


def test_the_planning_process_gets_the_settings(lake):
    """The search below would find them: they are in what the driver's own processes get."""
    written(lake)
    sent = CPickleSerializer().dumps(data_source(settings(lake))(options={"path": "test.db.t"}))
    assert CREDENTIAL.encode() in sent
    assert b"encryption.kms-impl" in sent


def test_read_function_and_partitions_hold_only_their_own_files_keys(lake):
    table = written(lake)
    by_path = deks(table)
    command, *partitions = planned(lake)
    assert len(by_path) == 3
    assert len(partitions) == 3
    never = [*KEYS.values(), *keks(table)]
    assert_clean(command, [*never, *by_path.values()])
    for sent in partitions:
        own = {task.path for task in pickle.loads(sent).tasks}  # noqa: S301 - our own
        assert len(own) == 1
        assert_clean(sent, [*never, *(dek for path, dek in by_path.items() if path not in own)])
        assert all(by_path[path] in sent for path in own)


def test_storage_settings_go_along(lake):
    written(lake)
    command, *_ = planned(lake)
    assert b"eu-north-1" in command


def test_a_used_source_is_pickled_without_settings(lake):
    written(lake)
    made = data_source(settings(lake))(options={"path": "test.db.t"})
    schema = made.schema()
    made.reader(schema)
    left = pickle.loads(cloudpickle.dumps(made))  # noqa: S301 - our own
    assert type(left) is SpentSource
    assert left.name() == "icelock"
    with pytest.raises(PolicyError, match="no settings"):
        left.schema()


def test_a_source_that_arrived_is_pickled_without_settings(lake):
    written(lake)
    arrived = pickle.loads(cloudpickle.dumps(data_source(settings(lake))(options={"path": "test.db.t"})))  # noqa: S301 - our own
    assert_clean(cloudpickle.dumps(arrived), list(KEYS.values()))


def planned_writer(lake: TestLake, *, overwrite: bool = False):
    made = data_source(settings(lake))(options={"path": "test.db.t"})
    return made.writer(spark_schema(lake.catalog().load_table("db.t").schema(), table="db.t"), overwrite)


def test_writer_holds_no_key_and_no_settings(lake):
    table = written(lake)
    writer = planned_writer(lake)
    assert_clean(cloudpickle.dumps(writer), [*KEYS.values(), *keks(table), *deks(table).values()])
    assert b"encryption." not in cloudpickle.dumps(writer)
    writer.abort([])


def test_the_drivers_file_is_sealed_private_and_short_lived(lake):
    written(lake)
    writer = planned_writer(lake)
    path = writer.ticket._path
    with open(path, "rb") as file:  # noqa: PTH123 - a path as text
        assert_clean(file.read(), list(KEYS.values()))
    from pathlib import Path  # noqa: PLC0415

    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700
    writer.abort([])
    assert not Path(path).parent.exists()
    with pytest.raises(CommitError, match="nothing is committed"):
        writer.commit([])


def test_a_message_holds_no_key_not_even_its_own_files(lake):
    table = written(lake)
    writer = planned_writer(lake)
    message = writer.write(iter(people(30).to_batches()))
    (told_of,) = told(writer, message)
    (file,) = told_of.files
    sent = cloudpickle.dumps(message)
    dek = KeyMetadata.decode(file.key_metadata).dek.reveal()
    assert_clean(sent, [*KEYS.values(), *keks(table), *deks(table).values(), dek])
    assert b"parquet" not in sent
    assert b"canary" not in sent  # bounds of columns
    assert (repr(message), repr(told_of)) == ("SealedFiles(1 parts)", "FilesWritten(1 files)")
    assert repr(file.key_metadata)[2:-1] not in repr(file)
    writer.commit([message])
    assert lake.catalog().load_table("db.t").scan().count() == 40
    assert dek in deks(lake.catalog().load_table("db.t")).values()


def test_reprs_show_no_key(lake):
    table = written(lake)
    split = Split(table.scan().scan_tasks())
    writer = planned_writer(lake)
    shown = "".join(map(repr, (split, writer, writer.ticket, settings(lake), split.tasks[0])))
    writer.abort([])
    for secret in (*KEYS.values(), *deks(table).values()):
        assert not any(form.decode("latin-1") in shown for form in forms(secret))
        assert repr(secret)[2:-1] not in shown
    assert CREDENTIAL not in shown


def test_a_split_restores_its_tasks(lake):
    tasks = written(lake).scan().scan_tasks()
    assert pickle.loads(cloudpickle.dumps(Split(tasks))).tasks == tasks  # noqa: S301 - our own
    assert all(isinstance(task.key_metadata, SecretBytes) for task in tasks)


def test_custom_storage_settings_go_along_when_they_are_named(lake):
    written(lake)
    made = data_source(Settings(catalogs={"test": lake.properties(**{"my.store": "x-77", "icelock.spark.executor-properties": "my."})}))(
        options={"path": "test.db.t"}
    )
    assert b"x-77" in cloudpickle.dumps(made.reader(made.schema()))


@pytest.mark.parametrize("prefixes", ["kms.", "encryption.kms-type", "uri", "u", "credential", "token, s3.", "py-kms-impl"])
def test_key_and_catalog_settings_cannot_be_named(lake, prefixes):
    written(lake)
    made = data_source(Settings(catalogs={"test": lake.properties(**{"icelock.spark.executor-properties": prefixes})}))(
        options={"path": "test.db.t"}
    )
    with pytest.raises(PolicyError, match="never go to executors"):
        cloudpickle.dumps(made.reader(made.schema()))


@pytest.mark.spark43
def test_executor_modules_bring_in_no_catalog():
    import subprocess  # noqa: PLC0415 - a fresh interpreter
    import sys  # noqa: PLC0415

    code = (
        "import sys, icelock.spark.task.read, icelock.spark.task.write, icelock.spark.task.row_rewrite\n"
        "import icelock.spark.columns.batches, icelock.spark.columns.types\n"
        "import icelock.spark.sealed.messages\n"
        "import icelock.arrow.read.task, icelock.arrow.write.writer\n"
        "found = [m for m in sys.modules if m.split('.')[0] in ('sqlalchemy', 'boto3', 'click') or m.startswith(('icelock.catalog', "
        "'icelock.kms.l', 'icelock.kms.m', 'icelock.table'))]\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_empty_batches_write_no_file(lake):
    written(lake)
    writer = planned_writer(lake)
    message = writer.write(iter([people().schema.empty_table().to_batches()[0]] if people().schema.empty_table().to_batches() else []))
    assert paths(writer, message) == []
    assert paths(writer, writer.write(iter([pa.RecordBatch.from_pylist([], people().schema)]))) == []
    writer.abort([message])
