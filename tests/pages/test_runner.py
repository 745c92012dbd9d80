"""What pages leave out of the run is counted, and the runner notices what it is there for."""

from __future__ import annotations

import pytest

from tests.helpers.places import ROOT
from tests.pages.blocks import PAGES, read_page
from tests.pages.run import PageError, run_page

# Blocks that nobody runs, by page. A new one is a line here, and has its reason beside it in the page.
NOT_RUN = {
    "README.md": 2,
    "docs/README.md": 1,
    "docs/how-to/install.md": 2,
    "docs/how-to/kms-azure.md": 2,
    "docs/how-to/kms-gcp.md": 1,
    "docs/how-to/kms-pkcs11.md": 2,
    "docs/how-to/move-in.md": 1,
    "docs/reference/iceberg-rust.md": 1,
    "docs/tutorial.md": 1,
}


@pytest.fixture
def page(tmp_path):
    def make(text):
        path = tmp_path / "page.md"
        path.write_text(text)
        return read_page(path)

    return make


@pytest.fixture
def run(page, tmp_path, monkeypatch):
    folder = tmp_path / "empty"
    folder.mkdir()
    return lambda text, **more: run_page(page(text), folder, monkeypatch, **more)


def test_what_is_not_run_is_counted():
    marked = {page.name: sum(block.not_run is not None for block in page.blocks) for page in map(read_page, PAGES)}
    assert {name: count for name, count in marked.items() if count} == NOT_RUN


def test_each_page_that_runs_is_in_one_of_the_tests():
    needs = {page.needs for page in map(read_page, PAGES) if page.runs}
    assert needs == {frozenset(some) for some in ([], ["spark"], ["dbt"], ["catalog-server"], ["key-service"])} - {frozenset(["dbt"])}


def test_no_page_installs_icelock_from_an_index():
    assert not [page for page in PAGES if "install 'icelock" in page.read_text(encoding="utf-8")]


def test_blocks_share_names_files_and_exported_variables(run):
    names = run(
        "```sh\nexport WORD=one\necho two > file.txt\n```\n\n"
        "```python\nimport os\nfrom pathlib import Path\nwords = [os.environ['WORD'], Path('file.txt').read_text().strip()]\n```\n\n"
        '```python title="three.py"\nWORD = "three"\n```\n\n'
        "```python\nfrom three import WORD\nwords.append(WORD)\nprint(*words)\n```\n\n```text\none two ...\n```\n"
    )
    assert names["words"] == ["one", "two", "three"]


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n",
        "```sh\necho one\n```\n\n```text\ntwo\n```\n",
        "```sh\nfalse\necho later\n```\n",
        "```sh\nfalse | cat\n```\n",
        "```python\nunknown\n```\n",
        "```console\n$ echo one\ntwo\n```\n",
        "```sh\nicelock keyring list nowhere.json\n```\n",
        "```sh\npip install icelock\n```\n",
        "```sh\npip install '.[nothing]'\n```\n",
        "- ```python\n  unknown\n  ```\n",
    ],
)
def test_a_page_that_is_wrong_is_noticed(run, text):
    with pytest.raises(PageError, match=r"page\.md:\d+"):
        run(text)


def test_a_traceback_has_the_line_of_the_page(run):
    with pytest.raises(PageError) as caught:
        run("# Title\n\n```python\nfine = 1\nunknown\n```\n")
    trace = caught.value.__cause__.__traceback__
    while trace.tb_next:
        trace = trace.tb_next
    assert trace.tb_lineno == 5


def test_a_block_that_is_marked_is_not_run(run):
    assert "ran" not in run("<!-- not run: it is an example -->\n\n```python\nran = True\n```\n")


@pytest.mark.parametrize(
    "text",
    [
        "<!-- not run: why -->\n\ntext in between\n\n```python\n```\n",
        "<!-- neds: spark -->\n",
        "<!-- needs: sparks -->\n",
        "```python not run\n```\n",
    ],
)
def test_a_comment_that_means_nothing_is_refused(page, text):
    with pytest.raises(ValueError, match="page"):
        page(text)


def test_a_stand_in_that_no_page_has_any_more_is_noticed(run):
    with pytest.raises(PageError, match="thrift"):
        run("```python\nuri = 'https://catalog'\n```\n", stand_ins={"thrift://metastore": "thrift://127.0.0.1"})


def test_python_run_here_finds_the_files_of_the_folder(run):
    assert run('```python title="mine.py"\nvalue = 5\n```\n\n```python\nimport mine\n```\n')["mine"].value == 5
    assert (ROOT / "mine.py").exists() is False
