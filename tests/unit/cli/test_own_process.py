"""What the command leaves out in a process of its own, and how it ends when nobody reads what it prints."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from click.testing import CliRunner

from icelock.cli.main import main
from tests.lakes.sqlite import KEYED, TestLake
from tests.unit.cli.test_maintain import done

CODE = """
import atexit, gc, importlib.util, sys
atexit.register(lambda: print(
    *(name for name in ("pyarrow.dataset", "pandas") if name in sys.modules),
    importlib.util.find_spec("pandas") is not None, not any("own_process" in type(f).__module__ for f in sys.meta_path),
    gc.get_threshold()[0] > 50_000, gc.get_freeze_count() > 100_000, file=sys.stderr,
))
from icelock.cli.main import main
main()
"""


def test_a_process_of_its_own_does_without_pandas_and_shows_the_same_rows(configured_lake: TestLake) -> None:
    catalog = configured_lake.catalog()
    catalog.create_namespace("db")
    moments = pa.array([1_767_225_600_000_000_001, None], pa.timestamp("ns"))
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "at": moments, "day": pa.array([-1, -1], pa.date32())})
    catalog.create_table("db.t", rows.schema, properties=KEYED).append(rows)
    found = subprocess.run([sys.executable, "-c", CODE, "head", "test.db.t", "--json"], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout)["rows"] == [
        {"id": 1, "at": "2026-01-01T00:00:00.000000001", "day": "1969-12-31"},
        {"id": 2, "at": None, "day": "1969-12-31"},
    ]
    assert found.stderr.split() == ["pyarrow.dataset", "True", "True", "True", "True"]
    assert done("head", "test.db.t")["rows"] == json.loads(found.stdout)["rows"]


def test_the_process_of_a_caller_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    before = gc.get_threshold()
    assert CliRunner().invoke(main, ["--version"]).exit_code == 0
    assert (gc.get_threshold(), frozen) == (before, [])


@pytest.mark.parametrize("words", [("--help",), ("head", "--help"), ("completion", "bash")], ids=" ".join)
def test_help_that_nobody_reads_ends_quietly(words: tuple[str, ...]) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        found = subprocess.run([sys.executable, "-m", "icelock", *words], stdout=writes, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writes)
    assert (found.returncode, found.stderr) == (141, b"")


def test_a_connection_that_breaks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("icelock.cli.table_names.load_catalog", broken)
    monkeypatch.setattr("icelock.cli.table_names.split_name", lambda name: tuple(name.split(".", 1)))
    found = CliRunner().invoke(main, ["head", "a.b.c"])
    assert (found.exit_code, found.stderr) == (2, "Error: BrokenPipeError: [Errno 32] Broken pipe\n")
