"""What commands print: rich text for people, JSON for machines. The only place of icelock that prints.

A command takes ``@json_option`` and ends with ``emit(data, view)``: with ``--json`` the data goes to standard output as one
JSON document, without it the view. How far it is (``progress``) and errors go to standard error (``cli/main.py``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar

import click
from rich import markup
from rich.console import Console, Group, RenderableType
from rich.tree import Tree

from icelock.errors import IcelockError
from icelock.shown import visible

_LONGEST: Final = 500  # of a text that others wrote
_WIDE: Final = 100_000  # characters of a line
_JSON: Final = "icelock.json"
TRACEBACK: Final = "ICELOCK_TRACEBACK"
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


def escape(text: str) -> str:
    """Return a text as it is printed in rich's markup, in one line."""
    return markup.escape(visible(text))


def emit(data: Any, view: Callable[[], RenderableType]) -> None:
    """Print a command's result.

    Args:
        data: what ``--json`` prints; never key bytes.
        view: makes what people see.
    """
    if wants_json():
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        console, wide = Console(highlight=False), Console(highlight=False, width=_WIDE)
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console = wide  # not 80: in a file or a pipe a path is in one piece, and no line is cut
        shown = view()
        for part in shown.renderables if isinstance(shown, Group) else (shown,):
            # rich cuts the lines of a tree at its console's width; a terminal wraps them.
            (wide if isinstance(part, Tree) else console).print(part, soft_wrap=True)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how far a command is, on standard error: a bar on a terminal, elsewhere a line for each tenth.

    Yields:
        What is to be called with how much is done, and how much there is.
    """
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        said = -1

        def line(done: int, whole: int) -> None:
            nonlocal said
            tenths = 10 * done // max(1, whole)
            if tenths != said:
                said = tenths
                console.print(visible(f"{what}: {10 * tenths} %"), markup=False, soft_wrap=True)

        yield line
        return
    from rich.progress import Progress

    with Progress(console=console, transient=True) as shown:
        task = shown.add_task(escape(what), total=None)
        yield lambda done, whole: shown.update(task, completed=done, total=whole)


def note(text: str) -> None:
    """Say how far a command is, in a line on standard error."""
    Console(stderr=True, highlight=False).print(visible(text), markup=False, soft_wrap=True)


def fail(error: Exception, *, code: int = 1) -> NoReturn:
    """End the command with an error as one line, and an exit code; with ``ICELOCK_TRACEBACK=1`` errors of others are raised.

    To be called where the error was caught.
    """
    if not isinstance(error, IcelockError) and os.environ.get(TRACEBACK):
        raise error
    emit_error(error)
    click.get_current_context().exit(code)


def emit_error(error: Exception) -> None:
    """Print an error as one line on standard error, in red, with its notes, which are icelock's; with ``--json`` as a JSON object."""
    message = " ".join(str(error).split())
    if not isinstance(error, IcelockError):
        kind = type(error).__name__
        message = f"{kind}: {message[:_LONGEST]}" if message else kind
    message = ". ".join([message, *(" ".join(text.split()) for text in getattr(error, "__notes__", ()))])
    if wants_json():
        click.echo(json.dumps({"error": type(error).__name__, "message": message}, ensure_ascii=False), err=True)
    else:
        Console(stderr=True, highlight=False).print(visible(f"Error: {message}"), style="bold red", markup=False, soft_wrap=True)
