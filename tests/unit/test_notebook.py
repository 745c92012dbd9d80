"""The notebooks of the tutorials are made of the pages that are there: cells of Python, cells for the shell, text between them."""

from __future__ import annotations

import pytest

from tools.site.notebook import notebook, pages, render


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_notebook_belongs_to_its_page(page):
    assert page.with_suffix(".ipynb").read_text(encoding="utf-8") == render(page), "python -m tools.site.notebook writes it anew"


def test_there_are_two():
    assert [page.name for page in pages()] == ["tutorial-spark.md", "tutorial.md"]


def test_what_runs_is_a_cell_and_the_rest_is_text():
    not_run = "<!-- not run: no -->\n\n```sh\nrm x\n```\n\n"
    page = f"# A\n\n<!-- needs: spark -->\n\n```sh\nls\n```\n\n{not_run}b\n\n```python\n1 + 1\n```\n\n```text\n2\n```\n"
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook(page)["cells"]]
    assert cells == [
        ("markdown", "# A"),
        ("code", "%%sh\nls"),
        ("markdown", "```sh\nrm x\n```\n\nb"),
        ("code", "1 + 1"),
        ("markdown", "```text\n2\n```"),
    ]
    assert len({cell["id"] for cell in notebook(page)["cells"]}) == 5
