"""What commands print: rich text for people, JSON for machines. The only place of icelock that prints.

A command takes ``@json_option`` and ends with ``emit(data, view)``: with ``--json`` the data goes to standard output as one
JSON document, without it the view. How far it is (``progress``) and errors go to standard error; with ``--json`` as JSON, a line each.

rich is imported when something is printed by it: help, completion and wrong usage do without.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from icelock.cli.exit_codes import Code
from icelock.errors import CatalogUnreachableError, IcelockError
from icelock.shown import visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_LONGEST: Final = 500  # of a text that others wrote
_WIDE: Final = 100_000  # characters of a line
_JSON: Final = "icelock.json"
_TABLE: Final = "icelock.table"
SOON: Final = 1.0  # seconds until it is said how far something is
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


def concerns(context: click.Context, table: str) -> None:
    """Note which table the running command is about, as the user named it: an error in JSON says it."""
    context.meta[_TABLE] = table


def escape(text: str) -> str:
    """Return a text as it is printed in rich's markup, in one line."""
    from rich import markup

    return markup.escape(visible(text))


def emit(data: Any, view: Callable[[], RenderableType]) -> None:
    """Print a command's result.

    Args:
        data: what ``--json`` prints; never key bytes.
        view: makes what people see.
    """
    if wants_json():
        with _closable():
            click.echo(json_text(data, indent=2))
        return
    from rich.console import Group
    from rich.tree import Tree

    console, wide = _console(), _console(width=_WIDE)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = wide  # not 80: in a file or a pipe a path is in one piece, and no line is cut
    shown = view()
    with _closable():
        for part in shown.renderables if isinstance(shown, Group) else (shown,):
            # rich cuts the lines of a tree at its console's width; a terminal wraps them.
            (wide if isinstance(part, Tree) else console).print(part, soft_wrap=True)


def json_text(data: Any, *, indent: int | None = None) -> str:
    """Return JSON as it is printed: what does not print is escaped, and on an output that is not UTF-8 all but ASCII."""
    ascii_only = not (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    text = json.dumps(data, indent=indent, ensure_ascii=ascii_only)
    # Outside of strings JSON has nothing but ASCII.
    return text if ascii_only else "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def _console(*, stderr: bool = False, width: int | None = None) -> Console:
    from rich.console import Console

    class Closable(Console):
        """Leaves it to ``_closable`` what happens when nobody reads any more."""

        def on_broken_pipe(self) -> None:
            raise  # noqa: PLE0704 - it is called where the error was caught

    return Closable(stderr=stderr, highlight=False, width=width)


@contextmanager
def _closable() -> Iterator[None]:
    """End the command quietly if who read the output has closed it."""
    try:
        yield
    except BrokenPipeError:
        drop_output()
        click.get_current_context().exit(Code.CLOSED)


def output_is_closed() -> bool:
    """Tell whether who read the output has closed it: after a ``BrokenPipeError``, which may be that of a connection as well."""
    asked = select.poll()
    try:
        asked.register(sys.stdout, 0)
    except (OSError, ValueError):  # no file
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in asked.poll(0))


def drop_output() -> None:
    """Let what Python flushes at its end go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how far a command is, on standard error: a bar on a terminal, elsewhere a line for each tenth. Of less than a second nothing.

    Yields:
        What is to be called with how much is done, and how much there is.
    """
    console = None if wants_json() else _console(stderr=True)
    if console is None or not console.is_terminal:
        yield _lines(what)
        return
    from rich.progress import Progress

    with Progress(console=console, transient=True) as shown:
        task = shown.add_task(escape(what), total=None)
        yield lambda done, whole: shown.update(task, completed=done, total=whole)


def _lines(what: str) -> Callable[[int, int], None]:
    said, soon = -1, time.monotonic() + SOON

    def line(done: int, whole: int) -> None:
        nonlocal said
        tenths = 10 * done // max(1, whole)
        if tenths != said and time.monotonic() >= soon:
            said = tenths
            if wants_json():
                click.echo(json_text({"progress": what, "percent": 10 * tenths}), err=True)
            else:
                note(f"{what}: {10 * tenths} %")

    return line


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal that a command is at work which cannot tell how far it is; elsewhere nothing."""
    console = None if wants_json() else _console(stderr=True)
    if console is None or not console.is_terminal:
        yield
        return
    with console.status(escape(what)):
        yield


def note(text: str) -> None:
    """Say how far a command is, in a line on standard error."""
    if wants_json():
        click.echo(json_text({"progress": text}), err=True)
    else:
        click.echo(visible(text), err=True)


def fail(error: Exception) -> NoReturn:
    """End the command with an error as one line, and its exit code; with ``ICELOCK_TRACEBACK=1`` errors of others are raised.

    To be called where the error was caught.
    """
    if not isinstance(error, IcelockError) and os.environ.get(TRACEBACK):
        raise error
    message = " ".join(str(error).split())
    if not isinstance(error, IcelockError | CatalogUnreachableError):
        kind = type(error).__name__
        message = f"{kind}: {message[:_LONGEST]}" if message else kind
    notes = [" ".join(text.split()) for text in getattr(error, "__notes__", ())]
    context = click.get_current_context()
    emit_error(type(error).__name__, message, Code.COULD_NOT, notes=notes, table=context.meta.get(_TABLE), as_json=wants_json())
    context.exit(Code.COULD_NOT)


def emit_error(  # noqa: PLR0913 - the parts of an error
    kind: str, message: str, code: Code, *, as_json: bool, notes: list[str] | None = None, table: str | None = None
) -> None:
    """Print an error as one line on standard error, in red, with its notes, which are icelock's; or as a JSON object."""
    if as_json:
        said = {"error": kind, "message": message, "notes": notes or [], "table": table, "exit-code": int(code)}
        click.echo(json_text(said), err=True)
        return
    text = visible(f"Error: {'. '.join([message, *(notes or [])])}")
    _console(stderr=True).print(text, style="bold red", markup=False, soft_wrap=True)
