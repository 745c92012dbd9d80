"""Writes docs/operations.md: ``make operations-docs``, which runs the operations first.

The outcomes on the page are those that recipes declare and ``test_matrix``, ``test_hive`` and ``test_spark`` prove; ``test_page`` holds the
committed page against them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.operations import all_recipes, spark
from tools.operations.recipe import Outcome, Recipe
from tools.operations.section import Row
from tools.operations.sections import SECTIONS

PAGE: Final = Path(__file__).parents[2] / "docs" / "operations.md"
_TEXT: Final = Path(__file__).parent / "operations.md.in"
_SHOWN: Final = {
    Outcome.READS: "reads",
    Outcome.ENCRYPTED: "encrypted",
    Outcome.METADATA: "metadata only",
    Outcome.REMOVES: "removes files",
    Outcome.CATALOG: "catalog only",
    Outcome.REFUSED: "refused",
}


def by_name() -> dict[str, Recipe]:
    """Return all recipes."""
    return {recipe.name: recipe for recipe in (*all_recipes.RECIPES, *spark.RECIPES)}


def faults() -> Iterator[str]:
    """Say what keeps the rows from being all that recipes prove."""
    known, listed = by_name(), [name for section in SECTIONS for row in section.rows for name in row.recipes]
    for section in SECTIONS:
        for row in section.rows:
            yield from (f"no recipe {name}" for name in row.recipes if name not in known)
            if len({known[name].outcome for name in row.recipes if name in known}) != 1:
                yield f"recipes of {row.what!r} do not have one outcome"
    yield from (f"{name} is in two rows" for name in set(listed) if listed.count(name) > 1)
    # The other two classes do what these do, or are refused as a whole.
    own = (name for name in known if not name.startswith(("HiveCatalog.", "StaticTable.")))
    silent = (Outcome.READS, Outcome.PART)
    yield from (f"{name} is in no row" for name in own if known[name].outcome not in silent and name not in listed)


def render() -> str:
    """Return the page."""
    known = by_name()
    tables = "\n\n".join(f"## {section.title}\n\n{_table(section.rows, known)}" for section in SECTIONS)
    return _TEXT.read_text(encoding="utf-8").replace("{tables}", tables)


def _table(rows: tuple[Row, ...], known: dict[str, Recipe]) -> str:
    lines = ["| operation | outcome | remark |", "| --- | --- | --- |"]
    lines += [f"| {row.what} | {_SHOWN[known[row.recipes[0]].outcome]} | {row.remark} |" for row in rows]
    return "\n".join(lines)


def main() -> int:
    """Write the page, or say why not."""
    wrong = list(faults())
    if wrong:
        print("docs/operations.md was not written:", *wrong, sep="\n", file=sys.stderr)
        return 1
    PAGE.write_text(render(), encoding="utf-8")
    print(f"{PAGE} written: {len(by_name())} recipes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
