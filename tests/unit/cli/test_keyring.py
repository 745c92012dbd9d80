from __future__ import annotations

import base64
import json
import os
import pty
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from click.testing import CliRunner

from icelock.cli.main import main
from icelock.kms.loader import load_kms_client

SOURCE = str(Path(__file__).parents[3] / "src")


class Run:
    """Runs `icelock keyring` in this process, in a folder of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.path = str(folder / "keyring")
        self.key_file = str(folder / "key")

    def __call__(self, *arguments, code=0, **options):
        result = CliRunner().invoke(main, ["keyring", *arguments], **options)
        shown = "".join(traceback.format_exception(result.exception)) if result.exception else ""
        assert result.exit_code == code, f"{result.output}\n{shown}"
        return result

    def unlocked(self, command, *arguments, code=0):
        return self(command, self.path, *arguments, "--key-file", self.key_file, code=code)

    def listed(self):
        return json.loads(self.unlocked("list", "--json").stdout)["keys"]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.delenv("ICELOCK_KEYRING_PASSPHRASE", raising=False)
    return Run(tmp_path)


@pytest.fixture
def orders(run):
    run.unlocked("init", "orders")
    return run


def test_version_is_printed():
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("icelock, version ")


def test_help_lists_the_commands():
    assert "keyring" in CliRunner().invoke(main, ["--help"]).output
    listed = CliRunner().invoke(main, ["keyring", "--help"]).output
    assert [line.split()[0] for line in listed.split("Commands:")[1].splitlines() if line] == [
        "add", "disable", "enable", "init", "list", "rotate"
    ]  # fmt: skip


def test_init_prints_properties_that_load_a_working_kms(run):
    made = json.loads(run.unlocked("init", "orders", "people", "--json").stdout)
    assert [key["key-id"] for key in made["keys"]] == ["orders", "people"]
    properties = made["catalog-properties"]
    assert properties == {"encryption.kms-type": "local", "kms.local.path": run.path, "kms.local.key-file": run.key_file}
    kms = load_kms_client(properties)
    assert kms.unwrap_key(kms.wrap_key(b"k" * 16, "people"), "people") == b"k" * 16


def test_init_shows_people_the_keys_and_the_properties(run):
    shown = run.unlocked("init", "orders").stdout
    assert "orders" in shown
    assert f"kms.local.path = {run.path}" in shown


def test_init_by_passphrase_from_the_environment(run, monkeypatch):
    monkeypatch.setenv("ICELOCK_KEYRING_PASSPHRASE", "correct horse")
    made = json.loads(run("init", run.path, "orders", "--json").stdout)
    assert made["catalog-properties"] == {"encryption.kms-type": "local", "kms.local.path": run.path}
    kms = load_kms_client(made["catalog-properties"])
    assert kms.unwrap_key(kms.wrap_key(b"k" * 16, "orders"), "orders") == b"k" * 16
    monkeypatch.setenv("ICELOCK_KEYRING_PASSPHRASE", "wrong horse")
    assert "the passphrase or key file is not this keyring's" in run("list", run.path, code=2).stderr


def test_another_passphrase_variable_is_in_the_printed_properties(run, monkeypatch):
    monkeypatch.setenv("MINE", "correct horse")
    made = json.loads(run("init", run.path, "--passphrase-env", "MINE", "--json").stdout)
    assert made["catalog-properties"]["kms.local.passphrase-env"] == "MINE"


def test_init_takes_a_key_file_that_is_there(run, tmp_path):
    Path(run.key_file).write_bytes(base64.b64encode(b"k" * 32))
    Path(run.key_file).chmod(0o600)
    run.unlocked("init")
    assert Path(run.key_file).read_bytes() == base64.b64encode(b"k" * 32)
    assert (tmp_path / "keyring").exists()


def test_init_does_not_overwrite(orders):
    before = Path(orders.path).read_bytes()
    assert "already exists" in orders.unlocked("init", code=2).stderr
    assert Path(orders.path).read_bytes() == before


def test_init_with_a_bad_key_id_makes_no_keyring(run):
    assert "printable characters" in run.unlocked("init", " orders", code=2).stderr
    assert not Path(run.path).exists()


def test_add_and_list(orders):
    orders.unlocked("add", "people")
    assert [(key["key-id"], key["state"]) for key in orders.listed()] == [("orders", "enabled"), ("people", "enabled")]


def test_add_refuses_an_id_that_is_taken(orders):
    assert "already exists" in orders.unlocked("add", "orders", code=2).stderr


def test_rotate_adds_a_version_and_old_blobs_still_open(orders):
    kms = load_kms_client({"encryption.kms-type": "local", "kms.local.path": orders.path, "kms.local.key-file": orders.key_file})
    blob = kms.wrap_key(b"k" * 16, "orders")
    orders.unlocked("rotate", "orders")
    assert [version["version"] for version in orders.listed()[0]["versions"]] == [1, 2]
    assert kms.unwrap_key(blob, "orders") == b"k" * 16


def test_disable_and_enable(orders):
    orders.unlocked("disable", "orders")
    assert orders.listed()[0]["state"] == "disabled"
    assert "is disabled" in orders.unlocked("rotate", "orders", code=2).stderr
    orders.unlocked("enable", "orders")
    assert orders.listed()[0]["state"] == "enabled"


@pytest.mark.parametrize("command", ["rotate", "disable", "enable"])
def test_unknown_key_ids_are_refused(orders, command):
    before = Path(orders.path).read_bytes()
    assert "no master key 'people'" in orders.unlocked(command, "people", code=2).stderr
    assert Path(orders.path).read_bytes() == before


@pytest.mark.parametrize(("command", "arguments"), [("list", ()), ("add", ("x",)), ("rotate", ("x",)), ("disable", ("x",))])
def test_missing_keyring_is_one_line_and_exit_code_2(run, command, arguments):
    result = run.unlocked(command, *arguments, code=2)
    assert result.stdout == ""
    assert result.stderr == (
        f"Error: keyring {run.path}: No such file or directory; make one with `icelock keyring init`, or correct kms.local.path\n"
    )


def test_errors_are_json_with_json(run):
    error = json.loads(run.unlocked("list", "--json", code=2).stderr)
    assert error["error"] == "KmsError"
    assert run.path in error["message"]


def test_passphrase_variable_that_is_not_set_is_an_error_without_a_terminal(run):
    assert "ICELOCK_KEYRING_PASSPHRASE is not set" in run("init", run.path, code=2).stderr
    assert not Path(run.path).exists()


def test_wrong_usage_is_exit_code_64(run):
    run("add", run.path, code=64)
    run("ad", run.path, code=64)


def test_key_ids_with_brackets_are_shown_as_they_are(orders):
    orders.unlocked("add", "[red]x[/red]")
    assert "[red]x[/red]" in orders.unlocked("list").stdout


def test_no_command_shows_key_bytes(orders, tmp_path):
    shown = "".join(orders.unlocked(*command).output for command in (("rotate", "orders"), ("list",), ("list", "--json")))
    secret = base64.b64decode((tmp_path / "key").read_bytes())
    for form in ((tmp_path / "key").read_text(encoding="utf-8").strip(), secret.hex()):
        assert form not in shown
    assert "sealed" not in shown


def test_passphrase_is_asked_for_at_a_terminal_twice_and_not_echoed(run):
    program = f"import sys; sys.path.insert(0, {SOURCE!r}); from icelock.cli.main import main; main()"
    leader, follower = pty.openpty()
    started = subprocess.Popen(
        [sys.executable, "-c", program, "keyring", "init", run.path, "orders"], stdin=follower, stdout=follower, stderr=follower,
        start_new_session=True, env=os.environ | {"ICELOCK_TEST": "1"},
    )  # fmt: skip
    os.close(follower)
    shown = b""
    for prompt in (b"Passphrase of the keyring:", b"Repeat for confirmation:"):
        while prompt not in shown:
            shown += os.read(leader, 1_024)
        os.write(leader, b"correct horse\n")
    while True:
        try:
            piece = os.read(leader, 1_024)
        except OSError:  # Linux says so when the other side is gone
            break
        if not piece:
            break
        shown += piece
    os.close(leader)
    assert started.wait(20) == 0, shown
    assert b"correct horse" not in shown
    assert run("list", run.path, env={"ICELOCK_KEYRING_PASSPHRASE": "correct horse"}).stdout.count("orders") == 1


@pytest.mark.parametrize("arguments", [("away/keyring", "a"), ("keyring", "a", "a")], ids=["no folder", "an id twice"])
def test_what_could_not_be_made_leaves_no_key_file(run, arguments):
    path, *ids = arguments
    run("init", str(run.folder / path), *ids, "--key-file", run.key_file, code=2)
    assert not Path(run.key_file).exists()
    run.unlocked("init", "a")
    before = Path(run.key_file).read_bytes()
    run("init", str(run.folder / "away" / "keyring"), "a", "--key-file", run.key_file, code=2)
    assert Path(run.key_file).read_bytes() == before, "one that was there opens another keyring"
