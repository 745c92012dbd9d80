"""What commands print: rich text for people, JSON for machines. The only place of icelock that prints.

A command takes ``@json_option`` and ends with ``emit(data, view)``: with ``--json`` the data goes to standard output as one
JSON document, without it the view. Errors go to standard error (``cli/main.py``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from rich.console import Console, RenderableType

from icelock.errors import IcelockError

_LONGEST: Final = 500  # of a text that others wrote
_JSON: Final = "icelock.json"
F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    """Give a command the option ``--json``."""
    return click.option("--json", is_flag=True, expose_value=False, is_eager=True, callback=_remember, help="Print JSON instead of text.")(
        command
    )


def _remember(context: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    context.meta[_JSON] = value


def wants_json() -> bool:
    """Tell whether the running command was given ``--json``."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_JSON, False))


def emit(data: Any, view: Callable[[], RenderableType]) -> None:
    """Print a command's result.

    Args:
        data: what ``--json`` prints; never key bytes.
        view: makes what people see.
    """
    if wants_json():
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        Console(highlight=False).print(view(), soft_wrap=True)


def emit_error(error: Exception) -> None:
    """Print an error as one line on standard error, in red; with ``--json`` as a JSON object."""
    message = " ".join(str(error).split())
    if not isinstance(error, IcelockError):
        kind = type(error).__name__
        message = f"{kind}: {message[:_LONGEST]}" if message else kind
    if wants_json():
        click.echo(json.dumps({"error": type(error).__name__, "message": message}, ensure_ascii=False), err=True)
    else:
        Console(stderr=True, highlight=False).print(f"Error: {message}", style="bold red", markup=False, soft_wrap=True)
