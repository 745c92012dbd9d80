"""The pages of the Python API: a page for each module that docs/architecture.md calls public, and one for the catalogs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_PUBLIC: Final = "## What is public"
_FOLDER: Final = "reference/api"
_WITH_HEADING: Final = "    options:\n      show_root_heading: true\n      show_root_toc_entry: true\n"


def api_pages() -> dict[str, str]:
    """Return each page's name on the site, and its text for mkdocstrings."""
    rows = _rows()
    modules = [module for module in rows if module.startswith("icelock")]
    pages = {module: [module] for module in modules}
    pages["icelock.kms"] += _classes(rows["icelock.kms"], "icelock.kms")
    pages["catalogs"] = _classes(rows["catalogs"], "icelock.catalog")
    return {f"{_FOLDER}/{name}.md": _page(name, objects) for name, objects in pages.items()}


def _rows() -> dict[str, str]:
    """Return the page's table: each module, and what of it is public; a row may name several."""
    text = (_ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition(_PUBLIC)[2]
    rows = re.findall(r"^\| ([^|]+) \| (.+) \|$", text, re.MULTILINE)
    return {name.strip("` "): said for names, said in rows if names != "---" for name in names.split(", ")}


def _classes(said: str, package: str) -> list[str]:
    """Return the classes that a row names, whole."""
    found = re.findall(r"`((?:[a-z0-9_]+\.)+[A-Z]\w+)`", said)
    return [name if name.startswith(package) else f"{package}.{name}" for name in found]


def _page(name: str, objects: list[str]) -> str:
    parts = ["# Catalogs\n" if name == "catalogs" else f"# `{name}`\n"]
    for found in objects:
        is_class = found.rpartition(".")[2][0].isupper()
        parts.append(
            f"::: {found}\n" + ("    options:\n      show_root_heading: true\n      show_root_toc_entry: true\n" if is_class else "")
        )
    return "\n".join(parts)
