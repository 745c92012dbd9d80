"""Writes docs/errors.md from a run: ``make errors-docs``.

``tests/mistakes`` holds the page against a run each day, ``tests/spark/test_mistakes.py`` what needs a session in turns.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.mistakes import command_mistakes, python_mistakes, spark_mistakes
from tools.mistakes.mistake import Mistake
from tools.mistakes.place import Place
from tools.mistakes.spark_place import SparkPlace

PAGE: Final = Path(__file__).parents[2] / "docs" / "errors.md"
OF_SPARK: Final = spark_mistakes.SECTIONS
SECTIONS: Final[Mapping[str, tuple[Mistake, ...]]] = {**python_mistakes.SECTIONS, **OF_SPARK, **command_mistakes.SECTIONS}
_HEAD: Final = """# Errors, and what to do

Written by `make errors-docs` from a run of {count} mistakes that users make; change them in `tools/mistakes`, not this
page. Each has the message as it is printed, why it came, and what to do. Search the page for words of the message that you got; the names
in it are yours. Errors of the storage, of keys and of other writers are in the how-to pages of [keys](how-to/keys.md),
[the audit](how-to/audit.md) and [changes](how-to/changes.md).

The table is `shop.orders` of catalog `lake`, with the columns `id` (required, the key), `city` and `at`; the keyring has one master key,
`lake-key`.
"""


def sections(page: str) -> dict[str, str]:
    """Return the page's sections of mistakes by title."""
    parts = re.split(r"^### ", page, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: "### " + part.partition("\n## ")[0].rstrip("\n") + "\n" for part in parts}


def render(shown: Mapping[str, str]) -> str:
    """Return the page of sections by title."""
    count = sum(map(len, SECTIONS.values()))
    parts = [_HEAD.format(count=count)]
    for title, mistakes in SECTIONS.items():
        parts += [f"## {title}\n", *(shown[mistake.title] for mistake in mistakes)]
    return "\n".join(parts)


def main() -> None:
    """Run the mistakes, and write the page."""
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder).resolve())
        with SparkPlace.started(place) as spark:
            shown = {
                mistake.title: mistake.section((spark if title in OF_SPARK else place).message(mistake))
                for title, mistakes in SECTIONS.items()
                for mistake in mistakes
            }
    PAGE.write_text(render(shown), encoding="utf-8")
    print(f"{PAGE} written: {sum(map(len, SECTIONS.values()))} mistakes")


if __name__ == "__main__":
    main()
