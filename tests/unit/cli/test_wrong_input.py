"""Whatever goes wrong, a command says it in one line and ends with exit code 2; wrong usage with 64 (docs/reference/cli.md)."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from sqlalchemy import create_engine, make_url

from icelock.catalog.sql import SqlCatalog
from icelock.cli.main import COMMANDS, main
from icelock.cli.output import TRACEBACK
from tests.lakes.sqlite import KEYED, TestLake, people

SQL = {"TYPE": "sql", "URI": "sqlite:///{folder}/catalog.db", "WAREHOUSE": "file://{folder}"}
CATALOGS = {
    "S": SQL,
    "DIALECT": {"TYPE": "sql", "URI": "bogus://user:secret@host/db"},
    "SCHEME": {"URI": "bogus://user:secret@host/db"},
    "KIND": {"TYPE": "frob", "URI": "x"},
    "NOURI": {"TYPE": "sql"},
    "FOLDER": {**SQL, "URI": "sqlite:////nonexistent/dir/catalog.db"},
    "AWAY": {"TYPE": "rest", "URI": "http://127.0.0.1:9"},
    "PLACE": {**SQL, "WAREHOUSE": "relative"},
}
WRONG = [
    (("leftovers", "db.t"), "catalog default is not in PyIceberg's configuration; it has: "),
    (("leftovers", "db.t", "--catalog", "awya"), "did you mean 'away'?"),
    (("leftovers", "db.t", "--catalog", "dialect"), "its uri, which begins with 'bogus', is unknown to SQLAlchemy"),
    (("leftovers", "db.t", "--catalog", "scheme"), "its uri begins with 'bogus', which tells no type; set type"),
    (("leftovers", "db.t", "--catalog", "kind"), "type 'frob' cannot hold encrypted tables"),
    (("leftovers", "db.t", "--catalog", "nouri"), "has no uri: set it to where the catalog is, such as sqlite:"),
    (
        ("leftovers", "db.t", "--catalog", "folder"),
        "sqlite:////nonexistent/dir/catalog.db cannot be used: (sqlite3.OperationalError) unable to",
    ),
    (("leftovers", "db.t", "--catalog", "away"), "catalog away: no server answers at http://127.0.0.1:9 ("),
    (("leftovers", "db.t", "--catalog", "place"), "a relative path means a different folder in each process"),
    (("leftovers", "db.t", "--catalog", "s"), "catalog s has no table db.t"),
    (("leftovers", "t", "--catalog", "s"), "'t' is not the name of a table: write NAMESPACE.TABLE"),
    (("leftovers", "", "--catalog", "s"), "'' is not the name of a table"),
    (("kms", "check", "--catalog", "nope", "--key", "k"), "catalog nope is not in PyIceberg's configuration"),
    (("kms", "check", "--catalog", "s", "--key", "k"), "no KMS is configured"),
    (("keyring", "list", "/nonexistent/keyring"), "No such file or directory; make one with `icelock keyring init`"),
]
FILES = {
    "catalog:\n  s:\n - secret": "line 3, column 2",
    "catalog: [secret]": "line 1",
    "\x80": "cannot be read",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for catalog, properties in CATALOGS.items():
        for name, value in properties.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__{catalog}__{name}", value.format(folder=tmp_path))
    return tmp_path


def said(*arguments: str, code: int = 2) -> str:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == code, (done.output, done.exception)
    assert isinstance(done.exception, SystemExit), "and not the error itself, which Python would print with a traceback"
    assert done.stdout == ""
    return done.stderr


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")
def test_what_goes_wrong_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    text = said(*arguments)
    assert text.startswith("Error: ")
    assert text.count("\n") == 1
    assert message in text
    assert "secret" not in text


@pytest.mark.parametrize("text", list(FILES))
@pytest.mark.parametrize(
    "arguments", [("leftovers", "db.t"), ("kms", "check", "--catalog", "s", "--key", "k"), ("pyiceberg", "list")], ids=str
)
def test_a_configuration_that_cannot_be_read(home: Path, arguments: tuple[str, ...], text: str) -> None:
    """The file and the line, without what is in it: there may be passwords."""
    (home / ".pyiceberg.yaml").write_bytes(text.encode("latin-1"))
    found = said(*arguments)
    assert f"correct the file {home / '.pyiceberg.yaml'}: " in found
    assert FILES[text] in found
    assert found.count("\n") == 1
    assert "secret" not in found


def test_a_catalog_that_is_no_block(home: Path) -> None:
    (home / ".pyiceberg.yaml").write_text("catalog:\n  y: hello\n")
    for arguments in (("leftovers", "db.t", "--catalog", "y"), ("kms", "check", "--catalog", "y", "--key", "k")):
        assert "no block of properties at catalog.y" in said(*arguments)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("age", ["99999999999d", "36501d", "3x"])
def test_ages_that_are_none(age: str) -> None:
    assert f"'{age}' is" in said("leftovers", "db.t", "--catalog", "s", "--older-than", age, code=64)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_any_error_of_any_command_is_one_line(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    def broken(*_: object) -> None:
        msg = "one\ntwo"
        raise RuntimeError(msg)

    monkeypatch.setattr(click.Command, "invoke", broken)
    monkeypatch.setattr(click.Group, "resolve_command", broken)
    assert said(command) == "Error: RuntimeError: one two\n"
    monkeypatch.setenv(TRACEBACK, "1")
    with pytest.raises(RuntimeError):
        CliRunner().invoke(main, [command], catch_exceptions=False)


@pytest.mark.usefixtures("home")
def test_with_json_it_is_an_object() -> None:
    found = json.loads(said("leftovers", "db.t", "--catalog", "folder", "--json"))
    assert found["error"] == "ConnectionError"
    assert "unable to open database file" in found["message"]


NAMES = [
    ("db.pepole", "catalog test has no table db.pepole; did you mean table db.people?"),
    ("db.zzz", "catalog test has no table db.zzz"),
    ("dbb.people", "catalog test has no table dbb.people; did you mean namespace db?"),
    ("shop.people", "catalog test has no table shop.people: it has no namespace shop"),
    ("test.db.people", "catalog test has no table test.db.people: that catalog is named already, so leave its name out: db.people"),
]


@pytest.mark.parametrize(("name", "said"), NAMES, ids=[name for name, _ in NAMES])
def test_a_name_that_leads_to_nothing_is_answered_with_what_may_be_meant(configured_lake: TestLake, name: str, said: str) -> None:
    catalog = configured_lake.catalog()
    catalog.create_namespace("db")
    catalog.create_table("db.people", people().schema, properties=KEYED)
    result = CliRunner().invoke(main, ["leftovers", name, "--catalog", "test"])
    assert (result.exit_code, result.output.strip()) == (2, f"Error: {said}")
    audited = CliRunner().invoke(main, ["audit", name, "--catalog", "test"])
    assert (audited.exit_code, audited.output.strip()) == (2, f"Error: {said.replace('no table', 'no table and no namespace', 1)}")


def test_a_password_of_a_database_is_not_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Away(SqlCatalog):
        def _init_again(self) -> None:
            self.engine = create_engine("sqlite:///file:/nonexistent/x.db?mode=ro&uri=true")
            monkeypatch.setattr(self.engine, "url", make_url("postgresql+psycopg://user:secret@host/db"))
            super()._init_again()

    with pytest.raises(ConnectionError, match=r"its database postgresql.psycopg://user:") as error:
        Away("lake", uri="sqlite:////nonexistent/x.db", warehouse=f"file://{tmp_path}")
    assert "secret" not in str(error.value)
