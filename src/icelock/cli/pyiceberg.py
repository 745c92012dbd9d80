"""``icelock pyiceberg``: PyIceberg's command line, with icelock's catalogs.

The commands are PyIceberg's own, and so is the configuration file. ``pyiceberg`` itself cannot open encrypted tables: PyIceberg 0.12
looks for ``py-catalog-impl`` among the arguments of ``load_catalog`` only, and its command line passes none on.

Not here: loading catalogs (``catalog.load``).
"""

from __future__ import annotations

import logging
from typing import Any, Final

import click
from pyiceberg.cli.console import run
from pyiceberg.cli.output import ConsoleOutput, JsonOutput

from icelock.catalog.load import load_catalog

# PyIceberg's options that are settings of the catalog.
_SETTINGS: Final = ("ugi", "uri", "credential", "warehouse")


_HELP: Final = "icelock.cli.pyiceberg.help"


class _Commands(click.Group):
    """Notes whether help is asked for, which needs no catalog."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_HELP] = not {"-h", "--help"}.isdisjoint(args)
        return super().parse_args(ctx, args)


@click.pass_context
def _begin(
    ctx: click.Context,
    /,
    catalog: str | None,
    verbose: bool | None,  # noqa: FBT001
    output: str,
    log_level: str,
    **settings: Any,
) -> None:
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s:%(levelname)s:%(name)s:%(message)s")
    printed = JsonOutput(verbose=verbose) if output == "json" else ConsoleOutput(verbose=verbose)
    ctx.obj = {"output": printed}
    if ctx.invoked_subcommand == "version" or ctx.meta[_HELP]:
        return
    try:
        ctx.obj["catalog"] = load_catalog(catalog, **{name: settings[name] for name in _SETTINGS if settings.get(name)})
    except Exception as e:  # noqa: BLE001 - as PyIceberg's: whatever it was is printed
        printed.exception(e)
        ctx.exit(1)


pyiceberg: Final = _Commands(
    "pyiceberg",
    commands=run.commands,
    params=[option for option in run.params if option.name != "version"],
    callback=_begin,
    help="PyIceberg's commands, on encrypted tables as well.",
)
