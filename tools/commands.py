"""README's table of commands, and what ``docs/reference/cli.md`` says of each: usage, help and options, as the commands themselves do.

``python -m tools.commands`` writes them between the pages' comments ``<!-- written by tools.commands NAME -->`` and ``<!-- end -->``;
``tests/test_readme.py`` compares. The rest of both pages is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from icelock.cli.exit_codes import Code
from icelock.cli.main import COMMANDS, main
from tools.wrap import wrap

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = (ROOT / "README.md", ROOT / "docs" / "reference" / "cli.md")
_PART: Final = re.compile(r"(<!-- written by tools[.]commands ([\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)
# In the order of the table: what is looked at, what is done to tables, keys, the rest.
ORDER: Final = (
    *("tables", "describe", "head", "count", "history", "keys", "audit"),
    *("optimize", "compact", "rewrite-deletes", "rewrite-manifests", "expire", "leftovers", "convert", "rotate"),
    *("keyring", "kms", "demo", "completion", "pyiceberg"),
)
_GROUPS: Final = frozenset({"keyring", "kms"})


def written(text: str) -> str:
    """Return a page's text with the parts that are written here."""
    return wrap(_PART.sub(lambda found: f"{found[1]}\n{_part(found[2])}\n\n{found[3]}", text))


def parts(text: str) -> list[str]:
    """Return the names of the parts of a page that are written here."""
    return [found[2] for found in _PART.finditer(text)]


def command_of(words: str) -> click.Command:
    """Return a command by its words, such as ``keyring init``."""
    found: click.Command = main
    for word in words.split():
        group = found
        assert isinstance(group, click.Group), words
        inner = group.get_command(click.Context(group), word)
        assert inner is not None, words
        found = inner
    return found


def all_commands() -> Iterator[str]:
    """Yield the words of each command; of a group those of its commands, but for PyIceberg's."""
    for name in ORDER:
        group = command_of(name)
        if name in _GROUPS and isinstance(group, click.Group):
            yield from (f"{name} {inner}" for inner in group.commands)
        else:
            yield name


def _part(name: str) -> str:
    if name == "table":
        rows = [(f"`icelock {words}`", _first_sentence(words)) for words in all_commands()]
        return "\n".join(["| command | does |", "| --- | --- |", *(f"| {command} | {does} |" for command, does in rows)])
    if name == "exit codes":
        return "\n".join(["| code | means |", "| --- | --- |", *(f"| {code.value} | {code.meaning} |" for code in Code)])
    return _help(name)


def _first_sentence(words: str) -> str:
    if words in COMMANDS:
        return COMMANDS[words]
    return command_of(words).get_short_help_str(limit=1_000)


def _help(words: str) -> str:
    """Return usage, help and options of a command."""
    command = command_of(words)
    context = click.Context(command, info_name=f"icelock {words}")
    pieces = [] if isinstance(command, click.Group) else command.collect_usage_pieces(context)
    usage = " ".join([context.command_path, *pieces])
    records = [found for param in command.params if (found := param.get_help_record(context)) and found[1]]
    rows = [f"| `{option}` | {_escaped(text)} |" for option, text in records]
    table = ["", "| option | |", "| --- | --- |", *rows] if rows else []
    return "\n".join([f"`{usage}`", "", _paragraphs(command.help or ""), *table])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _paragraphs(text: str) -> str:
    """Return a help text with a line for each paragraph."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
