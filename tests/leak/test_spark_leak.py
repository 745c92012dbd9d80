"""Nothing of keys and values in what Spark writes beside the table: event log, output of driver and workers, local and temporary files.

With ``spark.io.encryption.enabled``, as docs/threat-model.md asks for. Options of the jobs hold no key either: Spark logs plans.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.counting_kms import KEYS
from tests.helpers.spark import spark_environment
from tests.lakes.sqlite import TestLake
from tests.leak import canary
from tests.leak.canary import NUMBER, ROWS, SpyEntropy, rows
from tests.leak.needles import Needles, texts
from tests.leak.test_leak import none_of, spy_on_secrets

pytestmark = pytest.mark.spark

TABLES = ("db.source", "db.spark", "db.other")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes], dict[str, bytes]]:
    """Run the job; return its folder, the keys, and its output."""
    folder = tmp_path_factory.mktemp("spark-leak")
    for name in ("local", "event-log", "tmp"):
        (folder / name).mkdir()
    lake = TestLake(folder)
    catalog = canary.open_catalog(lake.properties(), SpyEntropy())
    catalog.create_namespace("db")
    for name in ("db.source", "db.other"):
        canary.make(catalog, name, **{"write.merge.mode": "merge-on-read"}).append(rows(count=40))
    (task,) = catalog.load_table("db.source").scan().plan_files()
    told = {
        "folder": str(folder),
        "properties": lake.properties(),
        "number": NUMBER,
        "damaged": task.file.file_path.removeprefix("file://"),
    }
    environment = {
        **spark_environment(),
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


def test_the_job_did_what_is_searched(ran: tuple[Path, dict[str, bytes], dict[str, bytes]]) -> None:
    folder, keys, output = ran
    assert len(keys) > 12
    assert b"Physical Plan" in output["stdout"]
    assert b"IntegrityError" in output["stdout"]
    assert b"aborting job" in output["stderr"]
    assert b"Reading File path" in (folder / "spark.log").read_bytes()
    assert b"FileScan icelock" in b"".join(path.read_bytes() for path in (folder / "event-log").rglob("*") if path.is_file())
    assert b"icelock" in b"".join(path.read_bytes() for path in (folder / "event-log").rglob("*") if path.is_file())
    assert [path for path in (folder / "local-kept").rglob("*") if path.is_file()]


def test_spark_writes_no_key_and_no_value_down(ran: tuple[Path, dict[str, bytes], dict[str, bytes]]) -> None:
    folder, keys, output = ran
    needles = Needles(keys)
    beside = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and "warehouse" not in p.parts}
    for name, data in {**beside, **output}.items():
        none_of(needles.find(name, data))
        none_of(texts({key: value for key, value in ROWS.items() if key != "number"}, name, data))


def test_spark_writes_encrypted_files_only(ran: tuple[Path, dict[str, bytes], dict[str, bytes]]) -> None:
    folder, keys, _ = ran
    needles = Needles(keys)
    files = [path for path in (folder / "warehouse").rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        data = path.read_bytes()
        none_of(needles.find(path.name, data))
        none_of(texts(ROWS, path.name, data))
        assert path.name.endswith(".metadata.json") or data[:4] in {b"AGS1", b"PARE"}, path.name
