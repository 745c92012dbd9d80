"""Nothing of keys and values in what Spark writes beside the table: event log, output of driver and workers, local and temporary files.

With ``spark.io.encryption.enabled``, as docs/threat-model.md asks for. Options of the jobs hold no key either: Spark logs plans. Of what is
logged at DEBUG, Spark's log has values of rows, as its generated code does; it has no key, and the others have no value.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from icelock.spark.jvm import jars
from tests.helpers.counting_kms import KEYS
from tests.helpers.spark import WARM, spark_environment
from tests.lakes.sqlite import TestLake
from tests.leak import canary
from tests.leak.canary import LITERAL, NUMBER, ROWS, TOKEN, SpyEntropy, rows
from tests.leak.needles import Needles, texts
from tests.leak.test_leak import none_of, spy_on_secrets

pytestmark = pytest.mark.spark

TABLES = ("db.source", "db.spark", "db.other", "db.stated", "db.plain")
Ran = tuple[Path, dict[str, bytes], dict[str, bytes]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run the job; return its folder, the keys, and its output."""
    folder = tmp_path_factory.mktemp("spark-leak")
    for name in ("local", "event-log", "tmp"):
        (folder / name).mkdir()
    lake = TestLake(folder)
    catalog = canary.open_catalog(lake.properties(), SpyEntropy())
    catalog.create_namespace("db")
    for name in ("db.source", "db.other"):
        canary.make(catalog, name, **{"write.merge.mode": "merge-on-read"}).append(rows(count=40))
    allowed = lake.catalog(**{"icelock.require-encryption": "false"})
    plain = allowed.create_table("db.plain", rows().schema, properties={"format-version": "2"})
    for _ in range(2):
        plain.append(rows(count=20))
    (task,) = catalog.load_table("db.source").scan().plan_files()
    told = {
        "folder": str(folder),
        "properties": lake.properties(token=TOKEN),
        "number": NUMBER,
        "damaged": task.file.file_path.removeprefix("file://"),
    }
    environment = {
        **spark_environment(WARM),
        "TMPDIR": str(folder / "tmp"),
    }
    job = subprocess.run(
        [sys.executable, "-m", "tests.leak.spark_job"],
        input=json.dumps(told).encode(),
        capture_output=True,
        check=False,
        timeout=900,
        env={**os.environ, **environment},
    )
    assert job.returncode == 0, job.stderr.decode()[-3000:]
    with pytest.MonkeyPatch.context() as patch:
        secrets = spy_on_secrets(patch)
        for name in TABLES:
            table = canary.open_catalog(lake.properties(), SpyEntropy()).load_table(name)
            for snapshot in table.snapshots():
                assert table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows
    keys = {f"secret {n}": key for n, key in enumerate(sorted(secrets)) if len(key) in (16, 24, 32)}
    keys |= {f"master {name}": key for name, key in KEYS.items()}
    session = bytes.fromhex((folder / "session-key").read_text())
    (folder / "session-key").unlink()
    return folder, keys | {"session": session}, {"stdout": job.stdout, "stderr": job.stderr}


def test_the_job_did_what_is_searched(ran: Ran) -> None:
    folder, keys, output = ran
    assert len(keys) > 12
    assert b"Physical Plan" in output["stdout"]
    assert b"IntegrityError" in output["stdout"]
    assert b"at fault" in output["stdout"]
    assert b"aborting job" in output["stderr"]
    assert b"Reading File path" in (folder / "spark.log").read_bytes()
    assert b"FileScan icelock" in b"".join(path.read_bytes() for path in (folder / "event-log").rglob("*") if path.is_file())
    assert b"icelock" in b"".join(path.read_bytes() for path in (folder / "event-log").rglob("*") if path.is_file())
    assert [path for path in (folder / "local-kept").rglob("*") if path.is_file()]
    assert b"DEBUG" not in (folder / "spark.log").read_bytes()
    for name, known in {"spark-debug": b"DEBUG org.apache.spark", "python-debug": b"at DEBUG", "py4j-debug": b"Command to send"}.items():
        assert known in (folder / f"{name}.log").read_bytes(), name
    assert b"pyspark.daemon" in (folder / "processes").read_bytes()


def test_spark_writes_no_key_and_no_value_down(ran: Ran) -> None:
    folder, keys, output = ran
    needles = Needles(keys)
    gateway = (folder / "gateway-token").read_text()
    for name, data in {**beside(folder), **kept_classes(), **output}.items():
        none_of(needles.find(name, data))
        if name != "spark-debug.log":
            none_of(texts({key: value for key, value in ROWS.items() if key != "number"}, name, data))
        if name != "gateway-token":
            none_of(texts({"token": TOKEN, **({} if name == "py4j-debug.log" else {"token of the gateway": gateway})}, name, data))


def beside(folder: Path) -> dict[str, bytes]:
    """Return all files that are not the table's."""
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file() and "warehouse" not in path.parts
    }


def kept_classes() -> dict[str, bytes]:
    """Return what icelock keeps from one session to the next."""
    found: dict[str, bytes] = {}
    for path in (jars._folder() or Path("nowhere")).glob("*.jar"):
        with zipfile.ZipFile(path) as jar:
            found |= {f"{path.name}/{name}": jar.read(name) for name in jar.namelist()}
    return found


def test_spark_shows_literals_of_statements_where_the_threat_model_says(ran: Ran) -> None:
    """In plans, so in logs and the event log, but nowhere that is kept without them."""
    folder, _, _ = ran
    shown = {name.split("/")[0] for name, data in beside(folder).items() if list(texts({"literal": LITERAL}, name, data))}
    assert {"event-log", "spark-debug.log"} <= shown <= {"event-log", "spark-debug.log", "py4j-debug.log"}


def test_spark_writes_encrypted_files_only(ran: Ran) -> None:
    folder, keys, _ = ran
    needles = Needles(keys)
    files = [path for path in (folder / "warehouse").rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        data = path.read_bytes()
        none_of(needles.find(path.name, data))
        none_of(texts({**ROWS, "literal": LITERAL}, path.name, data))
        assert path.name.endswith(".metadata.json") or data[:4] in {b"AGS1", b"PARE"}, path.name
