"""What docstrings of modules name in double backticks with dots is there: a reader goes where they point.

A name is looked for as it is written: below ``icelock``, below the package of its module, and as a file.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parent.parent.parent / "src" / "icelock"
_NAME = re.compile(r"``([a-z_]+(?:\.[a-z_0-9]+)+(?:\.[A-Za-z_]+)*)``")
# Properties, methods of objects, and names that stand for others.
_OTHERS = (
    *(
        "arrow.uuid",
        "catalog.namespace.",
        "catalog.pins.forget",
        "kms.client.",
        "kms.endpoint",
        "polars.from_pandas",
        "spark.network.",
        "spark.ssl.",
    ),
    "table.inspect",
)
PACKAGES = {path.name for path in SOURCE.iterdir() if path.is_dir() or path.suffix == ".py"} | {path.stem for path in SOURCE.glob("*.py")}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def is_there(name: str, module: Path) -> bool:
    parts = name.removeprefix("icelock.").split(".")
    for start in (SOURCE, module.parent, module.parent.parent):
        place, left = start, list(parts)
        while left and (place / left[0]).is_dir():
            place = place / left.pop(0)
        if place == start and not (place / f"{left[0]}.py").is_file():
            continue
        if not left:
            return True
        if (place / f"{left[0]}.py").is_file():
            text = (place / f"{left[0]}.py").read_text(encoding="utf-8")
            return len(left) == 1 or re.search(rf"\b{re.escape(left[1])}\b", text) is not None
        init = place / "__init__.py"
        if init.is_file() and re.search(rf"\b{re.escape(left[0])}\b", init.read_text(encoding="utf-8")):
            return True
    return False


def named(module: Path) -> list[str]:
    """Return the dotted names of a module's docstring that begin with a package or module of icelock."""
    text = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return [
        name for name in _NAME.findall(text) if name.removeprefix("icelock.").split(".")[0] in PACKAGES and not name.startswith(_OTHERS)
    ]


def test_what_docstrings_name_is_there() -> None:
    lost = [f"{path.relative_to(SOURCE)}: {name}" for path in modules() for name in named(path) if not is_there(name, path)]
    assert lost == []


def test_a_place_that_is_not_there_is_seen() -> None:
    assert not is_there("spark.driver.compact", SOURCE / "table" / "table.py")
    assert not is_there("plan.task.manifest_columns", SOURCE / "table" / "table.py")
    assert is_there("spark.driver.commit.end_job", SOURCE / "table" / "table.py")
