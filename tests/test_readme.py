"""README and docs say what is so: commands and options exist, links lead somewhere. Their code is run by tests/pages."""

from __future__ import annotations

import functools
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from icelock.cli.main import main
from tests.pages.blocks import read_page
from tools import commands as written_commands
from tools import licences
from tools.site import api, notebook

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```[^\n]*\n.*?^```", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands(page: Path) -> set[str]:
    """Every ``icelock ...`` that a page shows, in a block of shell lines or as inline code."""
    text = page.read_text(encoding="utf-8")
    shell = [block.text for block in read_page(page).blocks if block.language in {"sh", "console"}]
    lines = [line.strip() for text_of_block in shell for line in text_of_block.splitlines()]
    inline = re.findall(r"`(icelock [^`]+)`", FENCE.sub("", text))
    return {
        command.removeprefix("$ ").split(" #")[0].strip()
        for command in [*lines, *inline]
        if command.removeprefix("$ ").startswith("icelock ")
    }


@functools.cache
def help_text(*words: str) -> str:
    """Return the help of a command. That ``icelock`` runs in a process of its own is for make_keyring and tests/unit/cli."""
    done = CliRunner().invoke(main, [*words, "--help"], terminal_width=200, color=False)
    assert done.exit_code == 0, f"icelock {' '.join(words)} --help: {done.output}"
    return done.output


def subcommands(text: str) -> set[str]:
    _, _, listed = text.partition("Commands:")
    return set(re.findall(r"^  ([a-z][\w-]*)", listed, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_options_that_a_page_names_exist(page):
    for command in commands(page):
        path: list[str] = []
        for word in shlex.split(command)[1:]:
            known = subcommands(help_text(*path))
            if word.startswith("-"):
                assert word.split("=")[0] in help_text(*path), f"{name(page)}: `{command}`: icelock {' '.join(path)} has no option {word}"
            elif known:
                # "init|add|list" names several
                assert set(word.split("|")) <= known, f"{name(page)}: `{command}`: there is no command {word}, only {sorted(known)}"
                path.append(word.split("|")[0])


def test_readme_and_the_page_of_the_command_line_say_of_every_command_what_it_says_itself():
    readme, page = (path.read_text(encoding="utf-8") for path in written_commands.PAGES)
    assert [written_commands.written(text) for text in (readme, page)] == [readme, page], "python -m tools.commands"
    assert {*written_commands.ORDER} == subcommands(help_text())
    everything = {*written_commands.all_commands()}
    assert {"keyring init", "kms check", "head"} <= everything
    assert everything | {"exit codes"} == {*written_commands.parts(page)}
    assert [command for command in everything if f"`icelock {command}`" not in readme] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files_that_exist(page):
    targets = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text(encoding="utf-8")))
    broken = [target for target in targets if ":" not in target and not (page.parent / target.split("#")[0]).exists()]
    assert not broken, f"{name(page)}: {broken}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_page_is_reachable_from_the_index(page):
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    is_listed = page.parent == ROOT or page.name == "README.md" or str(page.relative_to(ROOT / "docs")) in index
    assert is_listed, f"{name(page)} is not in docs/README.md"


@pytest.mark.parametrize("page", [page for page in PAGES if page.is_relative_to(ROOT / "docs")], ids=name)
def test_every_page_is_in_the_navigation_of_the_site(page):
    listed = re.findall(r"(?:- |: )([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed.count(str(page.relative_to(ROOT / "docs"))) == 1, "mkdocs.yml, nav"


def test_the_site_has_a_page_for_each_public_module_and_notebooks_are_made_of_their_pages():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page for page in api.api_pages() if f": {page}\n" not in navigation] == [], "mkdocs.yml, nav"
    old = [page for page in notebook.pages() if page.with_suffix(".ipynb").read_text(encoding="utf-8") != notebook.render(page)]
    assert old == [], "python -m tools.site.notebook"


def test_licences_are_those_that_the_installed_packages_name():
    assert licences.PAGE.read_text(encoding="utf-8") == licences.render(), "python -m tools.licences"
    assert licences.packages()["psycopg"] == {"postgres"}
    assert "" in licences.packages()["pyarrow"]


def test_reference_lists_every_property():
    reference = (ROOT / "docs" / "reference" / "properties.md").read_text(encoding="utf-8")
    declared = re.compile(r"^[A-Z][A-Z_]*: Final = \"((?:encryption[.]|kms[.]|icelock[.]|py-kms|write[.])[^\"]*)\"", re.MULTILINE)
    names = {name for path in (ROOT / "src" / "icelock").rglob("*.py") for name in declared.findall(path.read_text(encoding="utf-8"))}
    assert len(names) > 20
    assert not {name for name in names if f"`{name}" not in reference}


def spec_map_rows() -> list[tuple[str, str]]:
    text = (ROOT / "docs" / "spec-map.md").read_text(encoding="utf-8").partition("## Where")[0]
    cells = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|") and "`" in line]
    return [(implemented, tested) for _, implemented, tested in cells]


def test_spec_map_names_functions_and_tests_that_exist():
    for implemented, tested in spec_map_rows():
        for dotted in re.findall(r"`([^`]+)`", implemented):
            module, _, attribute = dotted.rpartition(".")
            source = ROOT / "src" / "icelock" / f"{module.replace('.', '/')}.py"
            assert source.is_file(), dotted
            assert re.search(rf"^(def|class) {attribute}\b", source.read_text(encoding="utf-8"), re.MULTILINE), dotted
        for path in re.findall(r"`([^`]+)`", tested):
            target = ROOT / "tests" / path
            assert target.is_file() or any(target.rglob("test_*.py")), f"tests/{path} is missing"


def test_first_table_takes_ten_lines():
    first = next(block for block in read_page(ROOT / "README.md").blocks if block.language == "python")
    _, _, first_table = first.text.partition("\n\n")
    assert len([line for line in first_table.splitlines() if line.strip()]) <= 10
