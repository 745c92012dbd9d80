"""Runs the code blocks of a page as a reader would: one after the other, in an empty folder, in one Python and one shell.

What the shell exports, Python sees, as if it was started from there. Lines that install packages are not run: the extras that they name
have to exist, and ``tests/test_packaging.py`` installs the wheel.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner
from packaging.requirements import Requirement
from pyiceberg.utils.config import Config

from icelock.cli.main import main
from tests.helpers.places import ROOT, python_path
from tests.pages.blocks import Block, Page, read_page

_TOLERANT: Final = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_SECONDS: Final = 300
_EXPORTS: Final = ".exported"


class PageError(AssertionError):
    """A block failed, or printed something else than its page says."""


def run_page(page: Page, folder: Path, patch: pytest.MonkeyPatch, stand_ins: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a page in ``folder``, and before it those that it begins with; return Python's names afterwards.

    ``stand_ins`` are what is written in place of addresses and paths of the page, such as those of a server of the tests.

    Raises:
        PageError: a block fails or prints something else than its page says.
    """
    patch.chdir(folder)
    patch.syspath_prepend(str(folder))
    patch.setenv("PYTHONPATH", python_path())
    patch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    patch.delenv("COLUMNS", raising=False)  # pytest-xdist's, for its own output
    before = [read_page(ROOT / name).blocks for name in page.begin_with]
    _check_stand_ins(page, stand_ins or {})
    patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # PyIceberg reads its file when it is imported: now, for a reader
    names: dict[str, Any] = {"__name__": "__main__"}
    blocks = [_exchanged(block, stand_ins or {}) for block in (*(block for some in before for block in some), *page.blocks)]
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        printed = _run_block(block, folder, names, patch)
        if after is not None and after.language == "text" and after.title is None and block.runs:
            _compare(after, printed)
    return names


def _check_stand_ins(page: Page, stand_ins: Mapping[str, str]) -> None:
    text = "".join(block.text for block in page.blocks)
    if gone := [written for written in stand_ins if written not in text]:
        raise PageError(f"{page.name} has no {gone} any more: take them out of the table of stand-ins")


def _exchanged(block: Block, stand_ins: Mapping[str, str]) -> Block:
    text = block.text
    for written, instead in stand_ins.items():
        text = text.replace(written, instead)
    return replace(block, text=text)


def _run_block(block: Block, folder: Path, names: dict[str, Any], patch: pytest.MonkeyPatch) -> str:
    if block.title is not None:
        path = folder / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        if block.language == "python":
            compile(block.text, str(path), "exec")
    elif block.language in {"yaml", "json"}:
        yaml.safe_load(block.text)  # JSON is YAML too
    if not block.runs:
        return ""
    with _at(block):
        match block.language:
            case "python":
                return _python(block, names)
            case "sql":
                return _sql(block, names)
            case "console":
                return _console(block, patch)
            case _:
                return _shell(block.text, patch)


@contextlib.contextmanager
def _at(block: Block) -> Iterator[None]:
    try:
        yield
    except PageError as error:
        raise PageError(f"{block.place}: {error}") from None
    except Exception as error:
        raise PageError(f"{block.place}: {type(error).__name__}: {error}") from error


def _python(block: Block, names: dict[str, Any]) -> str:
    """Run Python; its tracebacks have the page's lines."""
    printed = io.StringIO()
    program = compile("\n" * (block.line - 1) + block.text, str(ROOT / block.page), "exec")
    with contextlib.redirect_stdout(printed):
        exec(program, names)  # noqa: S102
    return printed.getvalue()


def _sql(block: Block, names: Mapping[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for statement in filter(str.strip, block.text.split(";")):
            rows = names["spark"].sql(statement)
            if rows.columns:
                rows.show(truncate=False)
    return printed.getvalue()


def _console(block: Block, patch: pytest.MonkeyPatch) -> str:
    """Run the lines that begin with ``$``; each prints the lines up to the next one."""
    for part in filter(None, ("\n" + block.text).split("\n$ ")):
        command, _, expected = part.partition("\n")
        printed = _shell(command, patch)
        if not doctest.OutputChecker().check_output(expected.strip() + "\n", printed.strip() + "\n", _TOLERANT):
            raise PageError(f"$ {command}\nprints\n{printed}\nand not\n{expected}")
    return ""


def _shell(text: str, patch: pytest.MonkeyPatch) -> str:
    """Run lines of a shell in bash, or in this process if all are ``icelock ...``: a process takes a second of CPU to import it all."""
    lines = [line for line in text.splitlines() if not _installs(line)]
    if commands := _only_commands(lines):
        return "".join(map(_command, commands))
    script = "\n".join([*lines, f"env -0 > {_EXPORTS}"])
    command = ["bash", "-eu", "-o", "pipefail", "-c", script]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if done.returncode != 0:
        raise PageError(f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    exported = Path(_EXPORTS)
    for pair in exported.read_text().rstrip("\0").split("\0"):
        name, _, value = pair.partition("=")
        if os.environ.get(name) != value and name not in {"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES"}:
            patch.setenv(name, value)
    exported.unlink()
    return done.stdout


def _only_commands(lines: Sequence[str]) -> list[list[str]] | None:
    """Return the words after ``icelock`` of each line, or None if one is something else, or is for the shell to read."""
    words = [shlex.split(line, comments=True) for line in lines if not set(line.partition("#")[0]) & set("|&;<>()$`\\\n*?")]
    words = [some for some in words if some]
    alike = len([line for line in lines if line.partition("#")[0].strip()]) == len(words) and all(some[0] == "icelock" for some in words)
    return [some[1:] for some in words] if alike else None


def _command(words: Sequence[str]) -> str:
    done = CliRunner().invoke(main, list(words), catch_exceptions=False)
    if done.exit_code != 0:
        raise PageError(f"icelock {shlex.join(words)}: exit code {done.exit_code}\n{done.output[-4000:]}")
    return done.stdout


def _installs(line: str) -> bool:
    """Whether a line installs packages; if it does, what it says of icelock has to be so."""
    words = shlex.split(line, comments=True)
    if words[:2] != ["pip", "install"]:
        return False
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for word in words[2:]:
        path, bracket, extras = word.partition("[")
        if bracket and path in {"", "."}:
            asked = Requirement(f"icelock[{extras}").extras
            if unknown := asked - {*project["optional-dependencies"]}:
                raise PageError(f"{line}: there is no extra {unknown}")
        elif path.startswith("icelock"):
            raise PageError(f"{line}: icelock is on no package index; say how it is installed from a clone: pip install '.[...]'")
    return True


def _compare(expected: Block, printed: str) -> None:
    if not doctest.OutputChecker().check_output(expected.text, printed, _TOLERANT):
        raise PageError(f"{expected.place}: printed is\n{printed}\nand the page says\n{expected.text}")
