from __future__ import annotations

import base64
import json

import pytest
from click.testing import CliRunner

from icelock.cli.main import main
from tests.helpers.counting_kms import Calls

KEY_A = b"0123456789012345"
MEMORY = ("--property", "encryption.kms-type=memory", "--property", f"kms.memory.keys.keyA={KEY_A.hex()}")


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch, tmp_path):
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def run(*arguments):
    return CliRunner().invoke(main, ["kms", "check", "--catalog", "lake", *arguments], env={"COLUMNS": "300", "NO_COLOR": "1"})


def as_json(*arguments):
    done = run("--json", *arguments)
    return done.exit_code, json.loads(done.stdout)


def denying(tmp_path, call):
    calls = Calls(tmp_path)
    calls.deny(call)
    return [word for name, value in calls.properties().items() for word in ("--property", f"{name}={value}")]


def test_both_rights_work():
    code, data = as_json("--key", "keyA", *MEMORY)
    assert code == 0
    assert (data["catalog"], data["key-id"], data["wrap"]["ok"], data["unwrap"]["ok"]) == ("lake", "keyA", True, True)
    assert len(base64.b64decode(data["wrapped"])) == 12 + 16 + 16


def test_the_right_to_wrap_is_missing(tmp_path):
    code, data = as_json("--key", "keyA", *denying(tmp_path, "wrap"))
    assert code == 1
    assert (data["wrap"]["ok"], data["wrap"]["kind"], data["unwrap"]["ok"]) == (False, "DENIED", None)
    assert "the right to wrap with keyA is missing" in data["wrap"]["message"]
    assert "--wrapped" in data["unwrap"]["message"]


def test_the_right_to_unwrap_is_missing(tmp_path):
    code, data = as_json("--key", "keyA", *denying(tmp_path, "unwrap"))
    assert code == 1
    assert (data["wrap"]["ok"], data["unwrap"]["ok"], data["unwrap"]["kind"]) == (True, False, "DENIED")
    assert "missing" in run("--key", "keyA", *denying(tmp_path, "unwrap")).stdout


def test_a_reader_unwraps_what_a_writers_check_printed(tmp_path):
    wrapped = as_json("--key", "keyA", *MEMORY)[1]["wrapped"]
    code, data = as_json("--key", "keyA", "--wrapped", wrapped, *denying(tmp_path, "wrap"))
    assert code == 0
    assert (data["wrap"]["ok"], data["unwrap"]["ok"]) == (None, True)
    assert "wrapped" not in data


def test_a_blob_of_another_key_is_told_apart():
    code, data = as_json("--key", "keyA", "--wrapped", base64.b64encode(b"x" * 44).decode(), *MEMORY)
    assert code == 1
    assert (data["unwrap"]["ok"], data["unwrap"]["kind"]) == (False, "FOREIGN")


def test_a_missing_key_is_named_in_the_table():
    done = run("--key", "keyZ", *MEMORY)
    assert done.exit_code == 1
    assert "fails" in done.stdout
    assert "'keyZ'" in done.stdout


def test_settings_come_from_pyicebergs_configuration_and_properties_win(tmp_path):
    """PyIceberg makes the names of properties lower case."""
    (tmp_path / ".pyiceberg.yaml").write_text(
        f"catalog:\n  lake:\n    encryption.kms-type: memory\n    kms.memory.keys.low: '{KEY_A.hex()}'\n"
    )
    code, data = as_json("--key", "low")
    assert code == 0
    other = f"kms.memory.keys.low={b'1123456789012345'.hex()}"
    assert as_json("--key", "low", "--wrapped", data["wrapped"], "--property", other)[1]["unwrap"]["kind"] == "FOREIGN"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "no KMS is configured"),
        (("--property", "encryption.kms-typ=memory"), 2, "did you mean 'encryption.kms-type'"),
        (("--property", "nonsense"), 64, "expected NAME=VALUE"),
        ((*MEMORY, "--wrapped", "*"), 64, "expected base64"),
    ],
)
def test_wrong_settings_end_with_one_line(arguments, code, message):
    done = run("--key", "keyA", *arguments)
    assert done.exit_code == code
    assert message in done.stderr
