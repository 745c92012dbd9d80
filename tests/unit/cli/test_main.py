"""``icelock --help`` and the imports that it does without."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from icelock.cli.main import COMMANDS, main

CODE = """
import sys
from click.testing import CliRunner
from icelock.cli.main import main
assert CliRunner().invoke(main, [{argument!r}]).exit_code == 0
print(*sys.modules)
"""


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_import_no_command(argument):
    loaded = subprocess.run(
        [sys.executable, "-c", CODE.format(argument=argument)], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"pyiceberg", "pyarrow", "pandas", "pydantic", "sqlalchemy", "cryptography"} & set(loaded)


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
