"""``icelock --help`` and the imports that it does without."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from icelock.cli import output
from icelock.cli.main import COMMANDS, main

CODE = """
import sys
from click.testing import CliRunner
from icelock.cli.main import COMMANDS, main
from icelock.cli.exit_codes import Code
assert CliRunner().invoke(main, ["--version"]).exit_code == 0
for command in sorted({*COMMANDS} - {"pyiceberg", "demo", "keyring"}):
    assert CliRunner().invoke(main, [command, "--help"]).exit_code == 0, command
    assert CliRunner().invoke(main, [command, "--nonsense"]).exit_code == Code.USAGE, command
print(*sys.modules)
"""


def test_help_version_and_wrong_usage_import_nothing_that_takes_long():
    loaded = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout.split()
    assert "icelock.cli.audit" in loaded
    assert not {"pyiceberg", "pyarrow", "pandas", "pydantic", "sqlalchemy", "cryptography", "rich", "numpy"} & set(loaded)


def test_an_interrupt_ends_with_a_word_and_code_130(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Command, "invoke", interrupted)
    monkeypatch.setattr(click.Group, "resolve_command", interrupted)
    text = CliRunner().invoke(main, ["head", "a.b.c"])
    assert (text.exit_code, text.stdout, text.stderr.strip()) == (130, "", "Error: interrupted (Ctrl-C); what was committed stays")
    said = json.loads(CliRunner().invoke(main, ["head", "a.b.c", "--json"]).stderr)
    assert (said["error"], said["exit-code"]) == ("KeyboardInterrupt", 130)


def test_where_memory_runs_out_also_for_what_prints_errors_the_code_is_not_that_of_findings(monkeypatch):
    """Python ends with 1 by itself: to a script an audit would have found something."""

    def none_left(*_args, **_more):
        raise MemoryError

    monkeypatch.setattr(click.Group, "resolve_command", none_left)
    monkeypatch.setattr(output, "_console", none_left)
    text = CliRunner().invoke(main, ["audit", "a.b.c"])
    assert (text.exit_code, text.stdout, text.stderr.strip()) == (2, "", "Error: memory ran out")
    monkeypatch.setattr(main, "invoke", none_left)
    said = json.loads(CliRunner().invoke(main, ["audit", "a.b.c", "--json"]).stderr)
    assert (said["error"], said["exit-code"]) == ("MemoryError", 2)


def test_progress_is_told_after_a_second_and_as_json_with_json(monkeypatch):
    @click.command()
    @output.json_option
    def slow():
        with output.progress("work") as told:
            told(1, 2)
            told(2, 2)
        output.emit({"done": True}, lambda: "done")

    monkeypatch.setattr(output, "SOON", 60.0)
    assert CliRunner().invoke(slow).stderr == ""
    monkeypatch.setattr(output, "SOON", 0.0)
    assert CliRunner().invoke(slow).stderr == "work: 50 %\nwork: 100 %\n"
    lines = CliRunner().invoke(slow, ["--json"]).stderr.splitlines()
    assert [json.loads(line) for line in lines] == [{"progress": "work", "percent": 50}, {"progress": "work", "percent": 100}]


@pytest.mark.parametrize("module", ["icelock", "icelock.cli.main"])
def test_the_command_is_a_module_too(module):
    found = subprocess.run([sys.executable, "-m", module, "rotate", "--help"], capture_output=True, text=True, check=True)
    assert COMMANDS["rotate"] in found.stdout
    assert subprocess.run([sys.executable, "-m", module, "rotatte"], capture_output=True, check=False).returncode == 64


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_of_each_command_what_the_command_says_itself(name):
    command = main.get_command(click.Context(main), name)
    assert COMMANDS[name] == command.get_short_help_str(limit=1_000)
    assert name in CliRunner().invoke(main, ["--help"]).output
