"""What the sources import is what pyproject.toml asks for: nothing comes with another package by chance."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Packages whose name is not the module's.
NAMES = {
    "azure": {"azure-identity", "azure-keyvault-keys"},
    "google": {"google-cloud-kms"},
    "hive_metastore": {"pyiceberg"},
    "pkcs11": {"python-pkcs11"},
}
# Modules that only an extra brings; all others come with every install.
EXTRAS = {
    "asn1crypto": {"keystore"},
    "azure": {"azure"},
    "botocore": {"aws", "glue"},
    "duckdb": {"duckdb"},
    "google": {"gcp"},
    "hive_metastore": {"hive"},
    "hvac": {"vault"},
    "pandas": {"pandas"},
    "pkcs11": {"pkcs11"},
    "polars": {"fast", "polars"},
    "pyspark": {"spark"},
    "pytest": {"test"},
    "thrift": {"hive"},
}


def imported(path: Path) -> Iterator[str]:
    """The modules that a source file imports when it runs."""
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
            continue
        pending += ast.iter_child_nodes(node)


def foreign() -> set[str]:
    roots = {name.split(".")[0] for path in (ROOT / "src" / "icelock").rglob("*.py") for name in imported(path)}
    return roots - {*sys.stdlib_module_names, "icelock"}


def packages(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!;~ ]", requirement, maxsplit=1)[0].lower() for requirement in requirements}


@pytest.mark.parametrize("module", sorted(foreign()))
def test_what_is_imported_is_asked_for(module: str) -> None:
    wanted = NAMES.get(module, {module})
    if module not in EXTRAS:
        assert wanted <= packages(PROJECT["dependencies"])
    for extra in EXTRAS.get(module, ()):
        assert wanted <= packages(PROJECT["optional-dependencies"][extra]), extra


def test_the_extras_named_here_are_of_modules_that_are_imported() -> None:
    assert set(EXTRAS) <= foreign()
