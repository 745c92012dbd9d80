"""``icelock``: the command line.

Each command is in a module of this package that is imported when it is called, and imports what it works with when it does: ``--help``,
completion and wrong usage import neither PyIceberg nor rich. To add one, write the module and put it into ``COMMANDS``.

Every error ends as one red line, or with ``--json`` as an object; how a command ends is one of ``exit_codes.Code``. Errors that are not
icelock's own, such as those of a network or a database, come with their type; ``ICELOCK_TRACEBACK=1`` shows where they were raised.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from icelock import nearest
from icelock.cli import own_process
from icelock.cli.exit_codes import Code
from icelock.cli.output import drop_output, emit_error, fail, output_is_closed

# A command's name, which is that of its module (if ``_MODULES`` has no other) and of the function in it, and what it does: the first
# sentence of its help.
COMMANDS: Final[Mapping[str, str]] = {
    "audit": "Check whether all of a table is encrypted and intact, and which keys open what.",
    "compact": "Put the small data files of TABLE together, cut large ones, and write those with many deleted rows without these.",
    "completion": "Print the script that lets a shell complete commands, options and names.",
    "convert": "Make an encrypted table of the plain TABLE, under its own name, in one commit; or what comes after that.",
    "count": "Count the rows of TABLE.",
    "demo": "Make an encrypted lake from 336,776 real flights and show what is protected.",
    "describe": "Show what TABLE is: keys, columns, partitions, branches and tags, properties.",
    "expire": "Remove old snapshots of TABLE, with their keys and their files.",
    "head": "Show some rows of TABLE.",
    "history": "Show the snapshots of TABLE, the newest first, and what each changed.",
    "keyring": "Make and change the keyring file of the local KMS (encryption.kms-type = local).",
    "keys": "Show the keys of TABLE as a tree: which opens which, down to the files.",
    "kms": "Look after the key service that a catalog names.",
    "leftovers": "List the files at the location of TABLE that no snapshot reaches, such as those of writers that crashed.",
    "optimize": "Look at the numbers of a table, or of all tables of a namespace or catalog, and do what they ask for.",
    "rewrite-deletes": "Make deletion vectors of the deletes of TABLE, or take the deleted rows out of its data.",
    "rewrite-manifests": "Put the manifests of TABLE together, in the order of its partitions.",
    "rotate": "Give TABLE new keys; no row is changed.",
    "pyiceberg": "PyIceberg's commands, on encrypted tables as well.",
    "tables": "List tables, encrypted and plain, with their master keys and numbers of rows.",
}

_MODULES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("compact", "expire", "rewrite-deletes", "rewrite-manifests"), "maintain"),
    **dict.fromkeys(("count", "head"), "rows"),
}


class _Commands(click.Group):
    """Imports a command when it is asked for, and prints errors."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            if cmd_name not in self.commands:
                ctx.fail(f"No such command {cmd_name!r}; {nearest.hint(cmd_name, COMMANDS, otherwise='there are')}")
            return super().get_command(ctx, cmd_name)
        if cmd_name == "pyiceberg":
            # First: PyIceberg reads its configuration while it is imported.
            importlib.import_module("icelock.catalog.configuration").read_configuration()
        module = importlib.import_module(f"icelock.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse arguments as click does, whose help and version end quietly too if nobody reads them."""
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError:
            drop_output()
            raise click.exceptions.Exit(Code.CLOSED) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as e:  # noqa: BLE001 - it is the last to catch it
            if isinstance(e, BrokenPipeError) and output_is_closed():
                drop_output()
                ctx.exit(Code.CLOSED)
            fail(e)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's signature
        **extra: Any,
    ) -> Any:
        """Run a command as click does; wrong usage and interrupts end by icelock's codes."""
        if args is None:
            own_process.begin()
        given = list(sys.argv[1:] if args is None else args)
        if not standalone_mode:
            return super().main(given, prog_name, complete_var, standalone_mode=False, **extra)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8
        try:
            code = super().main(given, prog_name, complete_var, standalone_mode=False, **extra)
        except click.ClickException as e:
            code = _wrong_usage(e, as_json="--json" in given)
        except click.Abort:
            code = Code.INTERRUPTED
            emit_error("KeyboardInterrupt", f"{code.meaning}; what was committed stays", code, as_json="--json" in given)
        except MemoryError:  # what prints errors had none either; Python would end with the code of findings
            code = _no_memory(as_json="--json" in given)
        own_process.end()
        sys.exit(int(code) if isinstance(code, int) else Code.DONE)


def _wrong_usage(error: click.ClickException, *, as_json: bool) -> Code:
    if as_json:
        emit_error(type(error).__name__, error.format_message(), Code.USAGE, as_json=True)
    else:
        error.show()
    return Code.USAGE


def _no_memory(*, as_json: bool) -> Code:
    """Say so without rich, whose import takes some."""
    message = "memory ran out"
    if as_json:
        emit_error("MemoryError", message, Code.COULD_NOT, as_json=True)
    else:
        click.echo(f"Error: {message}", err=True)
    return Code.COULD_NOT


def _version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    if not value or context.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("icelock")
    except PackageNotFoundError:
        found = "unknown (not installed)"
    click.echo(f"icelock, version {found}")
    context.exit()


@click.group("icelock", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version and exit.")
def main() -> None:
    """Encrypted Apache Iceberg tables for Python and PySpark."""


if __name__ == "__main__":
    main()
