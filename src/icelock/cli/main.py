"""``icelock``: the command line.

Each command group is a module of this package and is imported when it is called, so that ``icelock --version`` needs no
extra and ``icelock --help`` takes no time. To add one, write the module and put it into ``COMMANDS``.

Every error ends as one red line and exit code 1 (of ``audit`` 2); wrong usage ends with exit code 2 (click's). Errors that are not
icelock's own, such as those of a network or a database, come with their type; ``ICELOCK_TRACEBACK=1`` shows where they were raised.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import click

from icelock import nearest
from icelock.cli.output import fail

# A command's name, which is that of its module (if ``_MODULES`` has no other) and of the function in it, and what it does: the first
# sentence of its help.
COMMANDS: Final[Mapping[str, str]] = {
    "audit": "Look whether all of a table is encrypted and whole, and which keys open what.",
    "compact": "Put the small data files of TABLE together, cut large ones, and write those with many deleted rows without these.",
    "convert": "Make an encrypted table of the plain TABLE, under its own name, in one commit; or what comes after that.",
    "demo": "Make an encrypted lake from 336,776 real flights and show what is protected.",
    "expire": "Remove old snapshots of TABLE, with their keys and their files.",
    "keyring": "Make and change the keyring file of the local KMS (encryption.kms-type = local).",
    "kms": "Look after the key service that a catalog names.",
    "leftovers": "List the files at the location of TABLE that no snapshot reaches, such as those of writers that crashed.",
    "optimize": "Look at the numbers of a table, or of all tables of a namespace or catalog, and do what they ask for.",
    "rewrite-deletes": "Make deletion vectors of the deletes of TABLE, or take the deleted rows out of its data.",
    "rewrite-manifests": "Put the manifests of TABLE together, in the order of its partitions.",
    "rotate": "Give TABLE new keys; no row is changed.",
    "pyiceberg": "PyIceberg's commands, on encrypted tables as well.",
}

_MODULES: Final[Mapping[str, str]] = dict.fromkeys(("compact", "expire", "rewrite-deletes", "rewrite-manifests"), "maintain")
# Those that read PyIceberg's configuration.
_CONFIGURED: Final = frozenset({"audit", "convert", "kms", "leftovers", "optimize", "pyiceberg", "rotate", *_MODULES})

# Exit code 1 is what they found; errors are 2.
_COULD_NOT_LOOK: Final = frozenset({"audit"})


class _Commands(click.Group):
    """Imports a command when it is asked for, and prints errors."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            if cmd_name not in self.commands:
                ctx.fail(f"No such command {cmd_name!r}; {nearest.hint(cmd_name, COMMANDS, otherwise='there are')}.")
            return super().get_command(ctx, cmd_name)
        if cmd_name in _CONFIGURED:
            # First: PyIceberg reads its configuration while it is imported.
            try:
                importlib.import_module("icelock.catalog.configuration").read_configuration()
            except Exception as e:
                if cmd_name not in _COULD_NOT_LOOK:
                    raise
                fail(e, code=2)
        command: click.Command = getattr(
            importlib.import_module(f"icelock.cli.{_MODULES.get(cmd_name, cmd_name)}"), cmd_name.replace("-", "_")
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as e:  # noqa: BLE001 - it is the last to catch it
            fail(e)


def _version() -> str:
    try:
        return version("icelock")
    except PackageNotFoundError:
        return "unknown (not installed)"


@click.group("icelock", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="icelock")
def main() -> None:
    """Encrypted Apache Iceberg tables for Python and PySpark."""


if __name__ == "__main__":
    main()
