"""What a user writes by the documentation passes ``mypy --strict`` and pyright's strict mode, and calls that are wrong do not.

The scripts are copied out of the repository first, so that none of its settings is in force. It runs in the lane ``test-typed``: pyright,
and types for PyArrow, are in a folder of their own (Makefile).
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.places import ROOT
from tools.operations.surface import spark_surface, surface
from tools.wrap import pages

SCRIPT = Path(__file__).with_name("user_script.py")
WRONG = """\
from datetime import UTC, datetime

import icelock
import icelock.spark

catalog: icelock.Catalog = icelock.load_catalog("lake")
table: icelock.Table = catalog.load_table("shop.orders")
rows: str = table.scan().count()
table.apend([])
catalog.load_tabel("shop.orders")
catalog.create_table("shop.orders")
table.maintenance.expire_snapshots().older_than("yesterday")
table.manage_snapshots().create_tag("first", "v1")
table.update_schema().add_columm("note")
table.changes(start_snapshot_id="1")
icelock.spark.reed()
icelock.load_tables()
table.maintenance.rotate("everything")
catalog.register_table("shop.orders", "metadata.json").changes(end_timestamp=datetime.now(UTC))
"""
SQL = re.compile(r"call\.|write\.mode=|\w+Stream$")  # statements, and what is Spark's
FIRST_WRONG, LAST_WRONG = 8, 18
# PyArrow has no types of its own, of which mypy wants to be told; and icelock itself is as if it were installed.
MYPY = """\
[mypy]
strict = true
[mypy-pyarrow.*]
ignore_missing_imports = True
[mypy-icelock.*]
follow_imports = silent
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("typed")
    shutil.copy(SCRIPT, made)
    (made / "wrong.py").write_text(WRONG)
    return made


def lines_found(reported: list[tuple[str, int, str]]) -> set[int]:
    """Return the lines of ``wrong.py``; nothing may be wrong with the script."""
    others = [one for one in reported if Path(one[0]).name != "wrong.py"]
    assert not others, others
    return {line for _, line, _ in reported}


def test_mypy_takes_what_is_right_and_finds_what_is_wrong(folder):
    pytest.importorskip("mypy", reason="make test-typed has mypy")
    (folder / "mypy.ini").write_text(MYPY)
    command = [sys.executable, "-m", "mypy", "--no-pretty", "--cache-dir", str(ROOT / ".cache" / "mypy"), "user_script.py", "wrong.py"]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src"), "PYTHONPATH": ""}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    reported = re.findall(r"^([^:\n]+):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    assert reported, done.stdout + done.stderr
    assert lines_found([(path, int(line), text) for path, line, text in reported]) == {*range(FIRST_WRONG, LAST_WRONG + 1)}


def test_pyright_takes_what_is_right_and_finds_what_is_wrong(folder):
    pyright = pytest.importorskip("pyright", reason="make test-typed has pyright")
    packages = str(Path(pyright.__file__).parents[1])
    settings = {"include": ["user_script.py", "wrong.py"], "typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src"), packages]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    environment = {**os.environ, "PYTHONPATH": packages, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.lstrip().startswith("{"), done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    reported = [(one["file"], one["range"]["start"]["line"] + 1, one["message"]) for one in found]
    assert lines_found(reported) == {*range(FIRST_WRONG, LAST_WRONG + 1)}


def documented() -> set[str]:
    """Return the names of public methods and functions that the pages' examples call, or that the page of operations names."""
    called: set[str] = set()
    for page in pages():
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            nodes = [*ast.walk(ast.parse(block))]
            called |= {node.func.attr for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}
            called |= {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    operations = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    works = [line for line in operations.splitlines() if re.match(r"\| (?!`CALL`)", line) and "| refused |" not in line]
    called |= {name for line in works for code in re.findall(r"`([\w.]+)`", line) for name in code.split(".")}
    return called & {name.rpartition(".")[2] for name in surface() | spark_surface() if not SQL.match(name)}


def test_every_documented_call_is_in_the_script():
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    missing = documented() - used
    assert not missing, f"tests/typed/user_script.py lacks these documented calls: {sorted(missing)}"
    assert len(documented()) > 60  # the pages were found
