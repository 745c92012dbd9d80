"""``icelock tables``, ``describe``, ``head``, ``count``, ``history``, ``keys``: what PyIceberg says, and arithmetic by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog as load_pyiceberg_catalog

from icelock.cli.main import main
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.unit.cli.test_maintain import done, run

EVIL = "\x1b]0;x\x07a\nb\u202ec\x9bd[red]"
LOOKS = (("tables", "test"), ("describe", "test.db.t"), ("head", "test.db.t"), ("history", "test.db.t"), ("keys", "test.db.t"))


@pytest.fixture
def lake(configured_lake: TestLake) -> TestLake:
    """A lake with ``db.t`` of 20 rows in two snapshots, of which one row is deleted in a third, and the plain ``db.inner.old`` of 10."""
    catalog = configured_lake.catalog()
    catalog.create_namespace("db")
    catalog.create_namespace(("db", "inner"))
    table = catalog.create_table("db.t", people().schema, properties=KEYED | {"write.delete.mode": "merge-on-read"})
    table.append(people(0))
    table.append(people(10))
    table.delete("id = 3")
    plain = catalog.create_table("db.inner.old", people().schema, properties={"icelock.plain": "true", "format-version": "2"})
    plain.append(people())
    return configured_lake


def snapshots(lake: TestLake) -> list[Any]:
    return list(lake.catalog().load_table("db.t").snapshots())


def test_tables_are_listed_with_their_state(lake: TestLake) -> None:
    found = done("tables", "test")
    rows = {row["table"]: (row["state"], row["master-key-id"], row["format-version"], row["error"]) for row in found["tables"]}
    assert rows == {"test.db.t": ("encrypted", "keyA", 3, None), "test.db.inner.old": ("plain", None, 2, None)}
    assert [row["rows"] for row in found["tables"]] == [10, 20], "as their writers told: a delete file's row is in the total"
    assert done("tables", "test.db.inner", "--names") == {"catalog": "test", "namespace": "db.inner", "tables": ["test.db.inner.old"]}
    assert run("tables").stdout == run("tables", "test").stdout, "the only catalog of the configuration"
    assert "2 tables: 1 encrypted, 1 plain" in run("tables", "test").stdout
    assert run("tables", "--names").stdout == "test.db.inner.old\ntest.db.t\n"
    location = lake.catalog().load_table("db.t").metadata_location.removeprefix("file://")
    Path(location).write_text("{")
    broken = run("tables", "test", code=1)
    assert "unreadable test.db.t: " in broken.stdout
    assert "1 plain, 1 unreadable" in broken.stdout


@pytest.mark.usefixtures("lake")
def test_what_a_table_is(lake: TestLake) -> None:
    found = done("describe", "test.db.t")
    first, second, third = snapshots(lake)
    assert {name: found[name] for name in ("table", "state", "master-key-id", "format-version", "data-key-length", "snapshots")} == {
        "table": "test.db.t",
        "state": "encrypted",
        "master-key-id": "keyA",
        "format-version": 3,
        "data-key-length": 16,
        "snapshots": 3,
    }
    assert [(one["name"], one["type"]) for one in found["columns"]] == [("id", "long"), ("name", "string"), ("city", "string")]
    assert found["snapshot"]["snapshot-id"] == third.snapshot_id
    older = done("describe", "test.db.t", "--snapshot-id", str(second.snapshot_id))
    assert (older["snapshot"]["snapshot-id"], older["snapshot"]["rows"]) == (second.snapshot_id, 20)
    assert first.snapshot_id != second.snapshot_id
    plain = done("describe", "test.db.inner.old")
    assert (plain["state"], plain["master-key-id"], plain["data-key-length"]) == ("plain", None, None)
    assert "state: plain (format version 2): its files are not encrypted" in run("describe", "test.db.inner.old").stdout


def test_rows_are_counted_as_they_are(lake: TestLake) -> None:
    first, second, third = snapshots(lake)
    table = lake.catalog().load_table("db.t")
    table.manage_snapshots().create_tag(first.snapshot_id, "one").commit()
    counts = {
        (): 19,
        ("--where", "id < 5"): 4,
        ("--where", "city = 'town-0'"): 6,  # 0, 6, 9, 12, 15, 18: 3 is deleted
        ("--snapshot-id", str(second.snapshot_id)): 20,
        ("--ref", "one"): 10,
        ("--ref", "main"): 19,
        ("--as-of", str(first.timestamp_ms)): 10,
        ("--as-of", "0s"): 19,
        ("--as-of", datetime.fromtimestamp(second.timestamp_ms / 1000, UTC).isoformat()): 20,
    }
    assert {options: int(run("count", "test.db.t", *options).stdout) for options in counts} == counts
    assert done("count", "test.db.t", "--where", "id < 5") == {
        "table": "test.db.t",
        "snapshot-id": third.snapshot_id,
        "where": "id < 5",
        "rows": 4,
    }
    plain = load_pyiceberg_catalog("test", type="sql", uri=lake.properties()["uri"], warehouse=str(lake.warehouse))
    assert (
        int(run("count", "test.db.inner.old", "--where", "id > 6").stdout) == 3 == plain.load_table("db.inner.old").scan("id > 6").count()
    )


def test_a_table_without_deletes_is_counted_by_metadata_alone(lake: TestLake) -> None:
    table = lake.catalog().load_table("db.t")
    for path in table.inspect.data_files()["file_path"].to_pylist():
        Path(path.removeprefix("file://")).unlink()
    assert run("count", "test.db.t", "--snapshot-id", str(snapshots(lake)[1].snapshot_id)).stdout == "20\n"


def test_rows_are_shown(lake: TestLake) -> None:
    rows = done("head", "test.db.t", "--columns", "id,city", "--where", "id >= 2 and id < 6")["rows"]
    assert sorted(rows, key=lambda row: row["id"]) == [{"id": number, "city": f"town-{number % 3}"} for number in (2, 4, 5)]
    assert len(done("head", "test.db.t")["rows"]) == 10
    assert done("head", "test.db.t", "--limit", "0")["rows"] == []
    assert "no rows in the columns id, name, city" in run("head", "test.db.t", "--where", "id = 3").stdout
    first = snapshots(lake)[0]
    assert len(done("head", "test.db.t", "--limit", "100", "--snapshot-id", str(first.snapshot_id))["rows"]) == 10
    assert "canary-00004" in run("head", "test.db.inner.old").stdout


def test_values_of_each_kind(configured_lake: TestLake) -> None:
    catalog = configured_lake.catalog()
    catalog.create_namespace("db")
    moment = datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC)
    values: dict[str, tuple[pa.DataType, Any, Any]] = {
        "nothing": (pa.string(), None, None),
        "binary": (pa.binary(), b"\x00\xffA", "00ff41"),
        "day": (pa.date32(), date(1969, 12, 31), "1969-12-31"),
        "at": (pa.timestamp("us", "UTC"), moment, "2026-01-02T03:04:05.600000+00:00"),
        "local": (pa.timestamp("us"), datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05"),  # noqa: DTZ001 - the type has no zone
        "price": (pa.decimal128(9, 2), Decimal("14.20"), "14.20"),
        "nan": (pa.float64(), float("nan"), "NaN"),
        "below": (pa.float64(), float("-inf"), "-Infinity"),
        "yes": (pa.bool_(), True, True),
        "items": (pa.list_(pa.int64()), [1, None, 2**60], [1, None, 2**60]),
        "place": (pa.struct([("x", pa.int64()), ("y", pa.string())]), {"x": 1, "y": None}, {"x": 1, "y": None}),
        "tags": (pa.map_(pa.string(), pa.binary()), [("a", b"\x01")], [{"key": "a", "value": "01"}]),
        "evil": (pa.string(), EVIL, EVIL),
    }
    rows = pa.table({name: pa.array([value], kind) for name, (kind, value, _) in values.items()})
    catalog.create_table("db.t", rows.schema, properties=KEYED).append(rows)
    (row,) = done("head", "test.db.t")["rows"]
    assert row == {name: shown for name, (_, _, shown) in values.items()}
    text = run("head", "test.db.t").stdout
    for shown in (
        "null",
        "00ff41",
        "2026-01-02T03:04:05.600000+00:00",
        "[1, null, 1152921504606846976]",
        '{"x": 1, "y": null}',
        "-Infinity",
    ):
        assert shown in text


def test_snapshots_are_told_newest_first(lake: TestLake) -> None:
    found = done("history", "test.db.t")
    assert [row["snapshot-id"] for row in found["history"]] == [one.snapshot_id for one in reversed(snapshots(lake))]
    assert [(row["operation"], row["added-rows"], row["current"], row["refs"]) for row in found["history"]] == [
        ("delete", None, True, ["main"]),
        ("append", 10, False, []),
        ("append", 10, False, []),
    ]
    limited = run("history", "test.db.t", "--limit", "1").stdout
    assert "3 snapshots, the newest 1" in limited
    assert str(snapshots(lake)[0].snapshot_id) not in limited
    lake.catalog().create_table("db.none", people().schema, properties=KEYED)
    assert run("history", "test.db.none").stdout == "test.db.none has no snapshots: nothing was written to it\n"


def test_keys_are_a_tree(lake: TestLake) -> None:
    run("rotate", "test.db.t", "--level", "kek")
    table = lake.catalog().load_table("db.t")
    table.append(people(100))
    entries = {entry.key_id: entry for entry in lake.catalog().load_table("db.t").metadata.encryption_keys}
    found = done("keys", "test.db.t")
    ((master,), keks) = ([one["master-key-id"] for one in found["master-keys"]], found["master-keys"][0]["keks"])
    assert master == "keyA"
    assert [len(kek["snapshots"]) for kek in keks] == [3, 1]
    for kek in keks:
        assert entries[kek["kek"]].encrypted_by_id == "keyA"
        for one in kek["snapshots"]:
            assert entries[one["manifest-list-key"]].encrypted_by_id == kek["kek"]
    counts = [(one["manifests"], one["data-files"], one["delete-files"]) for kek in keks for one in kek["snapshots"]]
    assert counts == [(1, 1, 0), (2, 2, 0), (3, 2, 1), (4, 3, 1)]
    assert (found["unneeded-keys"], found["plain-snapshots"], found["not-counted"]) == ([], [], [])
    shown = run("keys", "test.db.t").stdout
    assert "master key keyA, in the key service" in shown
    assert "4 manifests, 3 data files, 1 delete files, a key each" in shown
    wrapped = [entry.encrypted_key_metadata for entry in entries.values()]
    assert not any(blob.hex() in shown or blob.hex() in json.dumps(found) for blob in wrapped)


def test_keys_of_a_plain_table_and_without_a_key_service(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("keys", "test.db.inner.old").stdout == (
        "test.db.inner.old is plain (format version 2): it has no keys, and who reads its storage reads its rows\n"
    )
    assert done("keys", "test.db.inner.old")["master-keys"] == []
    for name in [name for name in lake.properties() if name.startswith(("encryption.", "kms."))]:
        monkeypatch.delenv(f"PYICEBERG_CATALOG__TEST__{name.upper().replace('.', '__').replace('-', '_')}")
    shown = run("keys", "test.db.t", code=2)
    assert "not counted no KMS is configured for catalog test" in shown.stdout
    assert "master key keyA" in shown.stdout
    assert "table db.t is encrypted with master key 'keyA', but no KMS is configured" in run("head", "test.db.t", code=2).stderr
    assert run("describe", "test.db.t").stdout


MISTAKES = [
    (("head", "test.db.x"), 2, "catalog test has no table db.x"),
    (("head", "test.db.T"), 2, "did you mean table db.t?"),
    (("count", "tset.db.t"), 2, "did you mean 'test'?"),
    (("count", "test.db"), 2, "names the namespace db of catalog test"),
    (("tables", "test.bd"), 2, "has no table and no namespace bd"),
    (("tables", "tset"), 2, "did you mean 'test'?"),
    (("count", "test.db.t", "--where", "ctiy = 'a'"), 2, "did you mean 'city'?"),
    (("count", "test.db.t", "--where", "city ="), 2, "a value is missing"),
    (("head", "test.db.t", "--columns", "id,ctiy"), 2, "did you mean 'city'?"),
    (("head", "test.db.t", "--columns", "id,,city"), 64, "commas between"),
    (("head", "test.db.t", "--limit", "-1"), 64, "--limit"),
    (("head", "test.db.t", "--limit", "ten"), 64, "--limit"),
    (("head", "test.db.t", "--ref", "mian"), 2, "did you mean 'main'?"),
    (("head", "test.db.t", "--snapshot-id", "7"), 2, "snapshot 7 is not in the table's metadata"),
    (("head", "test.db.t", "--snapshot-id", "7", "--ref", "main"), 64, "--snapshot-id and --ref exclude each other"),
    (("count", "test.db.t", "--as-of", "1990-01-01T00:00:00Z"), 2, "had no snapshot at 1990-01-01T00:00:00Z: its first is of 20"),
    (("count", "test.db.t", "--as-of", "2026-01-31"), 64, "such as '2026-01-31T00:00:00Z'"),
    (("count", "test.db.t", "--as-of", "yesterday"), 64, "such as '2026-01-31T12:00:00Z'"),
    (("describe", "test.db.t", "--ref", ""), 2, "no branch or tag ''"),
    (("history", "test.db.t", "--limit", "0"), 64, "--limit"),
    (("head", "db.t"), 2, "'db.t' names no catalog, and there is no default-catalog: write test.db.t"),
    (("keys", "t"), 2, "'t' is not the name of a table"),
    (("heat", "test.db.t"), 64, "did you mean 'head'?"),
    (("completion", "powershell"), 64, "bash"),
]


@pytest.mark.usefixtures("lake")
def test_what_cannot_be_is_a_sentence_or_an_object() -> None:
    for arguments, code, message in MISTAKES:
        text = CliRunner().invoke(main, list(arguments))
        assert (text.exit_code, text.stdout) == (code, ""), arguments
        assert message in text.stderr, (arguments, text.stderr)
        json_text = CliRunner().invoke(main, [*arguments, "--json"])
        if arguments[0] in {"heat", "completion"}:
            continue
        said = json.loads(json_text.stderr)
        assert (json_text.exit_code, json_text.stdout, said["exit-code"]) == (code, "", code), arguments
        assert [*said] == ["error", "message", "notes", "table", "exit-code"]
        assert message in said["message"], arguments
        if code == 2:
            assert said["table"] == arguments[1]


def test_names_and_values_of_others_do_not_reach_the_terminal_as_they_are(lake: TestLake) -> None:
    table = lake.catalog().load_table("db.t")
    table.manage_snapshots().create_tag(snapshots(lake)[0].snapshot_id, EVIL).commit()
    with table.update_schema() as change:
        change.update_column("city", doc=EVIL)
    table.append(people(100, 1).set_column(1, "name", pa.array([EVIL])))
    for arguments in (
        *LOOKS,
        ("head", "test.db.t", "--where", "id = 100"),
        ("describe", "test.db.t", "--json"),
        ("head", "test.db.t", "--json"),
    ):
        shown = run(*arguments).stdout
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(shown), arguments
    assert EVIL in {one["name"] for one in json.loads(run("describe", "test.db.t", "--json").stdout)["refs"]}
    assert "[red]" in run("head", "test.db.t", "--where", "id = 100").stdout


@pytest.mark.usefixtures("lake")
def test_a_narrow_terminal_gets_a_block_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert run("head", "test.db.t", "--limit", "1", "--where", "id = 4").stdout == "1\n  id: 4\n  name: canary-00004\n  city: town-1\n"
    assert "  state: encrypted\n" in run("tables", "test").stdout
    monkeypatch.setenv("COLUMNS", "80")
    assert "│  4 │ canary-00004 │ town-1 │" in run("head", "test.db.t", "--limit", "1", "--where", "id = 4").stdout


def shell(script: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = ["bash", "-c", f'icelock() {{ "{sys.executable}" -m icelock "$@"; }}; {script}']
    return subprocess.run(command, capture_output=True, check=False, timeout=120, env={**os.environ, **environment})


@pytest.mark.usefixtures("lake")
def test_terminals_and_pipes() -> None:
    """A pipe that is closed is no error, a terminal of ASCII gets ASCII, and without colours there is no control sequence."""
    closed = shell("icelock head test.db.t --where 'id < 100' --limit 10000 | head -1; echo ${PIPESTATUS[0]}")
    assert closed.stdout.splitlines()[-1] in {b"141", b"0"}
    assert closed.stderr == b""
    plain = shell("icelock head test.db.t --limit 1; icelock head test.db.x", PYTHONIOENCODING="ascii", NO_COLOR="1", FORCE_COLOR="")
    assert plain.stdout.isascii()
    assert b"canary" in plain.stdout
    assert b"\x1b" not in plain.stdout + plain.stderr
