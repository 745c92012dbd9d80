"""Each place where the installed PyIceberg loads what a text names: a new one of a new version fails here, to be looked at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pyiceberg

# Where: whose text it is, and why nobody else's can be.
REVIEWED = {
    "catalog/__init__.py _import_catalog": "py-catalog-impl of the client's configuration; icelock takes its own only (catalog.load)",
    "catalog/rest/auth.py AuthManagerFactory.create": "auth of the client's configuration; a server's is left out (catalog.rest_settings)",
    "io/__init__.py _import_file_io": "py-io-impl of the client's configuration; a server's is left out, a table's is not looked at",
    "io/pyarrow.py _import_retry_strategy": "s3.retry-strategy-impl of the client's configuration; likewise",
    "table/locations.py _import_location_provider": "a table's property; only if the client names it too (table.encryption, table.plain)",
    "transforms.py _try_import": "names of modules that stand in PyIceberg's code",
}
LOADERS = {
    "import_module", "__import__", "exec", "eval", "compile", "resolve_name", "entry_points", "load_module", "exec_module", "run_module",
    "run_path", "spec_from_file_location", "find_spec", "find_loader",
}  # fmt: skip
OTHERS = {"re.compile"}
MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "runpy", "pkgutil", "imp", "yaml", "strictyaml"}


def loaders(tree: ast.AST, inside: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield where a call loads what is no text of the code, and the call."""
    for node in ast.iter_child_nodes(tree):
        here = (*inside, node.name) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else inside
        if isinstance(node, ast.Call) and _loads(node):
            yield ".".join(inside), ast.unparse(node)
        yield from loaders(node, here)


def _loads(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    last = name.rsplit(".", 1)[-1]
    fixed = bool(call.args) and isinstance(call.args[0], ast.Constant)
    # ``eval`` is a method of PyIceberg's evaluators as well.
    return last in LOADERS and name not in OTHERS and not fixed and (last != "eval" or name == "eval")


def sources() -> Iterator[tuple[str, ast.AST]]:
    root = Path(next(iter(pyiceberg.__path__)))
    for file in sorted(root.rglob("*.py")):
        yield str(file.relative_to(root)), ast.parse(file.read_text())


def test_every_place_that_loads_what_a_text_names_was_looked_at() -> None:
    found = {f"{file} {where}" for file, tree in sources() for where, _ in loaders(tree)}
    assert found == set(REVIEWED)


def test_modules_that_make_objects_of_bytes_are_not_imported() -> None:
    found = {
        (file, name.split(".")[0])
        for file, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)])
    }
    # strictyaml reads the client's configuration file, as text.
    assert {one for one in found if one[1] in MODULES} == {("utils/config.py", "strictyaml")}


def test_the_search_finds_the_ways_there_are() -> None:
    code = """
class A:
    def f(self, x):
        importlib.import_module(x); __import__(x); import_module(x + "y"); eval(x); exec(x); pkgutil.resolve_name(x)
        import_module("fixed"); re.compile(x); evaluator.eval(x)
    g = lambda x: importlib.import_module(x)
"""
    found = [f"{where}: {call}" for where, call in loaders(ast.parse(code))]
    assert found == [
        "A.f: importlib.import_module(x)",
        "A.f: __import__(x)",
        "A.f: import_module(x + 'y')",
        "A.f: eval(x)",
        "A.f: exec(x)",
        "A.f: pkgutil.resolve_name(x)",
        "A: importlib.import_module(x)",
    ]
