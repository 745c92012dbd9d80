"""The tutorials' notebooks run from their first cell to their last in a kernel of Jupyter, and say what the pages say.

What each cell of a page prints is compared by ``tests/pages``; here it is that a notebook runs as one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.helpers.places import ROOT

nbformat = pytest.importorskip("nbformat", reason="make test-site has Jupyter's kernel")
nbclient = pytest.importorskip("nbclient")
DOCS = ROOT / "docs"


def run(name: str, folder: Path) -> list[str]:
    """Run a notebook in a folder; return what each cell printed."""
    book = nbformat.read(DOCS / name, as_version=4)
    nbformat.validate(book)
    nbclient.NotebookClient(book, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    return ["".join(output.get("text", "") for output in cell.outputs) for cell in cells]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), *sys.path]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    made = tmp_path / "empty"
    made.mkdir()
    return made


def test_the_tutorial_runs_as_a_notebook(folder):
    _, _, listed, read, broken, mended, without = run("tutorial.ipynb", folder)
    assert (listed.count("PARE"), listed.count("AGS1")) == (1, 2)
    assert '"4000-2","4000-3"' in read
    assert "file:///" in broken
    assert mended == "3\n"
    assert "keyring.key" in without


@pytest.mark.spark
@pytest.mark.slow
def test_the_tutorial_with_spark_runs_as_a_notebook_after_it(folder):
    run("tutorial.ipynb", folder)
    _, read, changed, made, begins = run("tutorial-spark.ipynb", folder)
    assert [line for line in read.splitlines() if "4000" in line] == ["|  2|4000-2|", "|  3|4000-3|"]
    assert [line for line in changed.splitlines() if "4000" in line] == ["|  3|4000-9|", "|  4|4000-4|", "|  5|4000-5|"]
    assert (made, begins) == ("5\n", "{b'PARE'}\n")
