"""What catalog and pins say, against a metadata file that was changed; and what cannot be looked at."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from icelock.audit.findings import CODES, Finding
from icelock.catalog.trust.facts import Facts
from icelock.errors import PolicyError
from icelock.maintenance import audit
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.unit.audit.conftest import look
from tests.unit.audit.surgery import Patient, path_of


@pytest.fixture
def lake(tmp_path: Path) -> TestLake:
    lake = TestLake(tmp_path)
    catalog = lake.catalog()
    catalog.create_namespace("db")
    catalog.create_table("db.t", people().schema, properties=KEYED).append(people())
    return lake


def metadata_file(lake: TestLake) -> Path:
    return path_of(lake.catalog().kept("db.t").location)


def counts(lake: TestLake, **properties: str) -> dict[str, int]:
    (report,) = audit(lake.catalog(**properties), "db.t").tables
    return dict(report.counts)


def test_a_metadata_file_that_was_edited(lake: TestLake) -> None:
    file = metadata_file(lake)
    file.write_bytes(file.read_bytes().replace(b'"last-updated-ms":1', b'"last-updated-ms":2'))
    assert counts(lake) == {"metadata-hash-differs": 1}


def test_white_space_is_no_change(lake: TestLake) -> None:
    """The hash is that of the text as Java writes it, which a file with spaces says as well."""
    file = metadata_file(lake)
    file.write_text(json.dumps(json.loads(file.read_text()), indent=1))
    assert counts(lake) == {}


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        ("key_id", "keyB", "catalog-key-id-differs"),
        ("data_key_length", "32", "catalog-key-length-differs"),
        ("metadata_hash", "AAAA", "metadata-hash-differs"),
        ("metadata_location", "/older.metadata.json", "metadata-hash-outdated"),
    ],
)
def test_facts_of_the_database(lake: TestLake, column: str, value: str, code: str) -> None:
    with sqlite3.connect(lake.folder / "catalog.db") as database:
        database.execute(f"UPDATE icelock_table_facts SET {column} = ?", (value,))  # noqa: S608 - names of the test
    database.close()
    (report,) = audit(lake.catalog(), "db.t").tables
    assert dict(report.counts) == {code: 1}
    assert report.verdict.value == ("sound" if code == "metadata-hash-outdated" else "findings")


def test_pins(lake: TestLake) -> None:
    assert counts(lake, **{"icelock.pins.db.t": "keyA"}) == {}
    assert counts(lake, **{"icelock.pins.db.t": "keyB"}) == {"pin-key-id-differs": 1}
    assert counts(lake, **{"icelock.pins.db.t": ""}) == {"pin-key-id-differs": 1}


def test_a_table_that_was_rolled_back_behind_the_pins_file(lake: TestLake) -> None:
    old, pins = metadata_file(lake), {"icelock.pins-file": str(lake.folder / "pins.json")}
    lake.catalog(**pins).load_table("db.t").append(people(10))
    lake.catalog(**pins).load_table("db.t")
    remembered = (lake.folder / "pins.json").read_bytes()
    assert counts(lake, **pins) == {}
    with sqlite3.connect(lake.folder / "catalog.db") as database:
        database.execute("UPDATE iceberg_tables SET metadata_location = ?", (str(old),))
        database.execute("DELETE FROM icelock_table_facts")
    database.close()
    assert counts(lake, **pins) == {"pin-version-differs": 1}
    assert (lake.folder / "pins.json").read_bytes() == remembered


def test_a_rotation_is_believed_if_the_keks_are_the_same(lake: TestLake) -> None:
    pins = {"icelock.pins-file": str(lake.folder / "pins.json")}
    lake.catalog(**pins).load_table("db.t")
    lake.catalog().load_table("db.t").maintenance.rotate("wrap", to_key="keyB")
    lake.catalog().load_table("db.t").maintenance.rotate("kek")
    assert counts(lake) == {}
    assert counts(lake, **pins) == {}
    remembered = json.loads((lake.folder / "pins.json").read_text())
    remembered["tables"]["test"]["db.t"]["keks"] = []
    (lake.folder / "pins.json").write_text(json.dumps(remembered))
    assert counts(lake, **pins) == {"pin-version-differs": 1}


def test_a_table_that_was_replaced_by_a_plain_one(lake: TestLake) -> None:
    catalog = lake.catalog(**{"icelock.pins.db.plain": ""})
    catalog.create_table("db.plain", people().schema, properties={"format-version": "2"})
    assert [dict(table.counts) for table in audit(lake.catalog(), "db.plain").tables] == [{"plain-table": 1}]
    assert audit(catalog, "db").verdict.value == "sound"
    with sqlite3.connect(lake.folder / "catalog.db") as database:
        database.execute(
            "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = 't'", (str(catalog.kept("db.plain").location),)
        )
    database.close()
    assert counts(lake) == {"catalog-key-id-differs": 1, "metadata-hash-outdated": 1, "plain-table": 1}


def facts(**change: Any) -> Facts:
    values = {
        "named": None,
        "metadata_location": None,
        "key_id": "keyA",
        "data_key_length": None,
        "metadata_hash": None,
        "where": "the metastore",
        "anew": "",
        **change,
    }
    return Facts(**values)


def test_a_row_of_hive_without_key_id_or_hash(patient: Patient) -> None:
    required = {"key_id_required": True, "hash_required": True}
    assert look(patient.file, kept={"facts": facts(key_id=None), **required}).counts == {"catalog-key-id-missing": 1}
    assert look(patient.file, kept={"facts": facts(), **required}).counts == {"metadata-hash-missing": 1}
    assert look(patient.file, kept={"facts": facts(), "key_id_required": True}).counts == {}


def test_a_server_that_answers_another_table_than_its_file(patient: Patient) -> None:
    metadata = patient.metadata
    said = {
        "table-uuid": metadata["table-uuid"],
        "current-snapshot-id": str(metadata["current-snapshot-id"]),
        "last-sequence-number": str(metadata["last-sequence-number"]),
        "encryption.key-id": "keyA",
    }
    assert look(patient.file, kept={"answer": said}).counts == {}
    for name in said:
        report = look(patient.file, kept={"answer": {**said, name: "1"}})
        assert (report.counts, report.statements["answer"]) == ({"catalog-answer-differs": 1}, "differs")


def test_without_a_kms_it_could_not_look(lake: TestLake) -> None:
    (report,) = audit(lake.without_kms(), "db.t").tables
    assert (report.verdict.value, report.counts) == ("could not look", {})
    assert "no KMS is configured" in report.unseen[0].why


def test_a_file_that_may_not_be_read_is_no_finding(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = lake.catalog()
    kept = catalog.kept("db.t")
    whole = type(kept.io).new_input

    def refuse(self: Any, location: str) -> Any:
        if location.endswith(".parquet"):
            raise PermissionError(13, "Permission denied", location)
        return whole(self, location)

    monkeypatch.setattr(type(kept.io), "new_input", refuse)
    (report,) = audit(catalog, "db.t").tables
    assert (report.verdict.value, report.unseen_count, report.counts) == ("could not look", 1, {})


def test_one_table_that_cannot_be_looked_at_does_not_stop_the_others(lake: TestLake) -> None:
    lake.catalog().create_table("db.u", people().schema, properties=KEYED)
    with sqlite3.connect(lake.folder / "catalog.db") as database:
        database.execute("UPDATE iceberg_tables SET metadata_location = 5 WHERE table_name = 'u'")
    database.close()
    shutil.rmtree(lake.warehouse / "db" / "u")
    told: list[str] = []
    report = audit(lake.catalog(), told=lambda table: told.append(table.table))
    assert [(table.table, table.verdict.value) for table in report.tables] == [("db.t", "sound"), ("db.u", "findings")]
    assert told == ["db.t", "db.u"]


@pytest.mark.parametrize(
    "asked", [{"depth": "deep"}, {"depth": []}, {"snapshots": "old"}, {"threads": 0}, {"depth": "foreign", "snapshots": "current"}], ids=str
)
def test_what_is_asked_wrongly_is_refused(lake: TestLake, asked: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        audit(lake.catalog(), "db.t", **asked)


def test_names_that_are_not_there(lake: TestLake) -> None:
    for name in ("db.nix", "nix", "db..t"):
        with pytest.raises(PolicyError):
            audit(lake.catalog(), name)


def test_a_remedy_names_the_table_as_a_shell_takes_it() -> None:
    """Names are others' text, and remedies are copied into a shell."""
    for name, words in {
        "db.t": "icelock leftovers lake.db.t --delete",
        "db.a b;$(x)": "icelock leftovers 'lake.db.a b;$(x)' --delete",
    }.items():
        finding = Finding(code="plain-object", what="x", sentence="x", catalog="lake", table=name)
        assert finding.remedy.endswith(words)
    assert "(icelock.pins.db.NAME empty)" in Finding(code="plain-table", what="x", sentence="x", catalog="lake", table="db.NAME").remedy


def test_every_code_is_on_the_page_of_findings() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "audit.md").read_text(encoding="utf-8")
    listed = [line for line in page.splitlines() if line.startswith("| `")]
    assert listed == [f"| `{code}` | {severity.value} | {remedy} |" for code, (severity, remedy) in CODES.items()]
