"""Which private names of PyIceberg icelock leans on, found in the sources of both.

Three kinds: private names that are imported; methods and attributes of PyIceberg's classes that a class of ours overrides; and
private attributes that our code asks for and does not define itself. PyIceberg's side is read from the installed package, so on a
new version the same search says what has gone.

``python -m tests.unit.pyiceberg_seams`` writes the list to ``pyiceberg_seams.txt``.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import icelock

OURS = Path(icelock.__file__).parent
RECORDED = Path(__file__).with_suffix(".txt")


@dataclass(frozen=True, order=True)
class Seam:
    """``name`` of ``where``: a module, or ``*`` for an attribute of whichever of PyIceberg's classes has it."""

    where: str
    name: str


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@cache
def sources(folder: Path) -> list[tuple[str, ast.Module]]:
    return [(path.relative_to(folder).as_posix(), ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(folder.rglob("*.py"))]


def defined(tree: ast.AST) -> set[str]:
    """Private names that a module gives to classes, instances and itself."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return {name for name in names if private(name)}


def pyiceberg_folder() -> Path:
    found = importlib.util.find_spec("pyiceberg")
    return Path(found.submodule_search_locations[0])


def pyiceberg_definitions() -> set[str]:
    return set().union(*(defined(tree) for _, tree in sources(pyiceberg_folder())))


def imported() -> dict[Seam, set[str]]:
    found = defaultdict(set)
    for path, tree in sources(OURS):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pyiceberg":
                for alias in node.names:
                    if private(alias.name):
                        found[Seam(str(node.module), alias.name)].add(path)
    return found


def overridden() -> dict[Seam, set[str]]:
    """Private members that our classes define over those of a PyIceberg class."""
    found = defaultdict(set)
    for info in pkgutil.walk_packages([str(OURS)], "icelock."):
        module = importlib.import_module(info.name)
        for ours in vars(module).values():
            if not isinstance(ours, type) or ours.__module__ != module.__name__:
                continue
            for base in ours.__mro__[1:]:
                if base.__module__.split(".")[0] == "pyiceberg":
                    for name in filter(private, vars(ours).keys() & vars(base).keys()):
                        if name not in ("_abc_impl", "_is_protocol"):
                            found[Seam(f"{base.__module__}.{base.__qualname__}", name)].add(
                                info.name.removeprefix("icelock.").replace(".", "/") + ".py"
                            )
    return found


def asked_for() -> dict[Seam, set[str]]:
    """Private attributes that a module of ours reads and no module of ours defines, but PyIceberg does."""
    trees = sources(OURS)
    own = set().union(*(defined(tree) | slots(tree) for _, tree in trees))
    theirs = pyiceberg_definitions()
    found = defaultdict(set)
    for path, tree in trees:
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Attribute) and private(node.attr) and node.attr in theirs):
                continue
            if node.attr not in own or ast.unparse(node.value) == "super()":
                found[Seam("*", node.attr)].add(path)
    return found


def slots(tree: ast.AST) -> set[str]:
    """Fields of dataclasses and of slots."""
    fields = {node.target.id for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {name for name in fields | texts if private(name)}


@cache
def all_seams() -> dict[Seam, set[str]]:
    return {**imported(), **overridden(), **asked_for()}


def text() -> str:
    """Return the list as it is recorded: a line a seam, with the modules that use it."""
    lines = (f"{seam.where}:{seam.name}  {' '.join(sorted(where))}" for seam, where in sorted(all_seams().items()))
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    RECORDED.write_text(text(), encoding="utf-8")
