"""``icelock completion``, and what a shell is offered for names: catalogs, and within one its namespaces and tables.

The scripts are click's. Catalogs are read from PyIceberg's file and variables without PyIceberg, whose import takes half a second of CPU;
namespaces and tables are asked from the catalog once its name is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

_FILE: Final = ".pyiceberg.yaml"
_HOME: Final = "PYICEBERG_HOME"
_VARIABLE: Final = "pyiceberg_catalog__"
# Click's bash and zsh put a space behind each word: behind a catalog or a namespace it would be in the way. Fish puts none behind a dot.
_ADDS: Final = "COMPREPLY+=($value)"
_ADDS_IN_ZSH: Final = "compadd -U -V unsorted -a completions"
_NO_SPACE: Final = {
    _ADDS: f"{_ADDS}\n            [[ $value == *. ]] && compopt -o nospace",
    _ADDS_IN_ZSH: (
        'local -a whole=("${(@)completions:#*.}") begun=("${(@M)completions:#*.}")\n'
        "        compadd -U -V unsorted -S '' -a begun\n"
        "        compadd -U -V unsorted -a whole"
    ),
}


@click.command()
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]))
def completion(shell: str) -> None:
    """Print the script that lets a shell complete commands, options and names.

    In ~/.bashrc: eval "$(icelock completion bash)". In ~/.zshrc, behind compinit: eval "$(icelock completion zsh)". In
    ~/.config/fish/config.fish: icelock completion fish | source.
    """
    kind: Any = get_completion_class(shell)
    made = kind(None, {}, "icelock", "_ICELOCK_COMPLETE")  # the script depends on the names only
    script = made.source_template % made.source_vars()
    for line, instead in _NO_SPACE.items():
        script = script.replace(line, instead)
    click.echo(script.strip())


def names_of_catalogs(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the catalogs of PyIceberg's configuration that begin so."""
    return _items(_catalogs(incomplete))


def names_of_tables(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return catalogs, each with a dot; or namespaces and tables of the catalog that is named, here or by ``--catalog``."""
    catalog, before, rest = context.params.get("catalog"), "", incomplete
    if catalog is None:
        catalog, dot, rest = incomplete.partition(".")
        if not dot:
            return _items(f"{name}." for name in _catalogs(incomplete))
        before = f"{catalog}."
    if catalog.lower() not in configured_names():
        return []
    try:
        return _items([f"{before}{name}" for name in _below(catalog, rest)])
    except Exception:  # noqa: BLE001 - a catalog that is away has nothing to offer, and a prompt is no place for an error
        return []


def _catalogs(incomplete: str) -> Iterator[str]:
    """Yield the catalogs that begin so; PyIceberg's names are in lower case, however they are written."""
    return (name for name in configured_names() if name.startswith(incomplete.lower()))


def _items(names: Any) -> list[CompletionItem]:
    """Return what a shell is offered: no name that would do something to the terminal, or be cut apart by the shell."""
    return [CompletionItem(name) for name in names if name.isprintable() and not set(name) & set(" \"'`$\\;&|<>(){}*?!#")]


def configured_names() -> list[str]:
    """Return the names of the catalogs in PyIceberg's configuration; those of its file are left out if it cannot be read."""
    variables = (name[len(_VARIABLE) :].split("__")[0] for name in map(str.lower, os.environ) if name.startswith(_VARIABLE))
    return sorted({*(name.replace("_", "-") for name in variables), *_in_file()})


def _in_file() -> Iterator[str]:
    import strictyaml  # type: ignore[import-untyped]

    for folder in (os.environ.get(_HOME), str(Path.home()), "."):
        path = Path(folder or "") / _FILE
        if folder and path.is_file():
            try:
                found = strictyaml.load(path.read_text(encoding="utf-8")).data
            except (OSError, ValueError, strictyaml.YAMLError):
                return
            lowered = {name.lower(): value for name, value in found.items()} if isinstance(found, dict) else {}
            catalogs = lowered.get("catalog")
            yield from (name.lower() for name in catalogs) if isinstance(catalogs, dict) else ()
            return


def _below(catalog: str, incomplete: str) -> Iterator[str]:
    from icelock.cli.load import load_catalog

    loaded = load_catalog(catalog)
    space = tuple(incomplete.split(".")[:-1])
    for inner in loaded.list_namespaces(space):
        if (name := ".".join(inner)).startswith(incomplete):
            yield f"{name}."
    for table in loaded.list_tables(space) if space else ():
        if (name := ".".join(table)).startswith(incomplete):
            yield name
