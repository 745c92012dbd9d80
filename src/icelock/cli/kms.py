"""``icelock kms check``: does the KMS that a catalog names let this user wrap and unwrap with a master key?

16 random bytes are wrapped and unwrapped again; no table is touched. With ``--wrapped`` only unwrapping is tried, which is all that a
reader may.

Not here: the clients (``icelock.kms``).
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from icelock.cli.completion import names_of_catalogs
from icelock.cli.exit_codes import Code
from icelock.cli.output import emit, escape, json_option, working
from icelock.errors import IcelockError, KmsError, PolicyError
from icelock.properties import KMS_IMPL, KMS_TYPE, check_catalog_properties

if TYPE_CHECKING:
    from rich.console import RenderableType

    from icelock.kms.client import KmsClient

_TRIAL_LENGTH: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The outcome for one right; ``ok`` is None if it was not tried."""

    ok: bool | None
    kind: str | None = None
    message: str | None = None
    data: bytes = b""

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "kind": self.kind, "message": self.message}


@click.group()
def kms() -> None:
    """Look after the key service that a catalog names."""


@kms.command()
@click.option("--catalog", metavar="NAME", required=True, shell_complete=names_of_catalogs, help="Catalog of PyIceberg's configuration.")
@click.option("--key", "key_id", metavar="ID", required=True, help="Master key, as in encryption.key-id.")
@click.option("--property", "given", metavar="NAME=VALUE", multiple=True, help="Catalog property, before those of the configuration.")
@click.option("--wrapped", metavar="BASE64", help="A wrapped key that another check printed: only unwrap it.")
@json_option
@click.pass_context
def check(context: click.Context, catalog: str, key_id: str, given: tuple[str, ...], wrapped: str | None) -> None:
    """Try to wrap and unwrap with a master key, and say which right is missing."""
    from icelock.kms import ask

    blob = None if wrapped is None else _decoded(wrapped)
    client = _client(catalog, given)
    with working(f"kms check of {catalog}"):
        if blob is None:
            wrap, unwrap = _try_both(client, key_id)
        else:
            wrap, unwrap = _Outcome(ok=None), _tried(lambda: ask.unwrapped(client, blob, key_id))
    data = {"catalog": catalog, "key-id": key_id, "wrap": wrap.as_json(), "unwrap": unwrap.as_json()}
    if wrap.ok:
        data["wrapped"] = base64.b64encode(wrap.data).decode()
    emit(data, lambda: _view(catalog, key_id, {"wrap": wrap, "unwrap": unwrap}, wrap.data))
    if not unwrap.ok or wrap.ok is False:
        context.exit(Code.FOUND)


def _client(catalog: str, given: tuple[str, ...]) -> KmsClient:
    from icelock.catalog.configuration import configured, not_configured, read_configuration
    from icelock.kms.loader import load_kms_client

    config = read_configuration()
    properties = {**configured(config, catalog), **dict(_pair(text) for text in given)}
    check_catalog_properties(properties)
    client = load_kms_client({name: str(value) for name, value in properties.items()})
    if client is None and not properties:
        raise PolicyError(f"no KMS is configured: {not_configured(config, catalog)}")
    if client is None:
        raise PolicyError(
            f"catalog {catalog}: no KMS is configured; set {KMS_TYPE} or {KMS_IMPL} in PyIceberg's configuration, or by --property"
        )
    return client


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r}: expected NAME=VALUE", param_hint="--property")
    return name, value


def _decoded(wrapped: str) -> bytes:
    try:
        return base64.b64decode(wrapped, validate=True)
    except binascii.Error as e:
        raise click.BadParameter("expected base64, as a check prints it", param_hint="--wrapped") from e


def _try_both(client: KmsClient, key_id: str) -> tuple[_Outcome, _Outcome]:
    from icelock.kms import ask

    key = os.urandom(_TRIAL_LENGTH)
    wrap = _tried(lambda: ask.wrapped(client, key, key_id))
    if not wrap.ok:
        return wrap, _Outcome(ok=None, message="not tried, because nothing was wrapped; give a wrapped key by --wrapped")
    unwrap = _tried(lambda: ask.unwrapped(client, wrap.data, key_id))
    if unwrap.ok and unwrap.data != key:
        return wrap, _Outcome(ok=False, message="another key came back; look at the KMS client")
    return wrap, unwrap


def _tried(call: Callable[[], bytes]) -> _Outcome:
    try:
        return _Outcome(ok=True, data=call())
    except KmsError as e:
        return _Outcome(ok=False, kind=e.kind.name, message=str(e))
    except IcelockError as e:
        return _Outcome(ok=False, message=str(e))


def _view(catalog: str, key_id: str, outcomes: dict[str, _Outcome], blob: bytes) -> RenderableType:
    from rich.table import Table

    caption = f"wrapped: {base64.b64encode(blob).decode()}" if blob else None
    table = Table(title=escape(f"catalog {catalog}, master key {key_id}"), title_justify="left", caption=caption, caption_justify="left")
    for column in ("right", "", "why"):
        table.add_column(column, overflow="fold")
    for right, outcome in outcomes.items():
        word = {True: "[green]works[/]", False: "[red]missing[/]", None: "not tried"}[outcome.ok]
        if outcome.ok is False and outcome.kind != "DENIED":
            word = "[red]fails[/]"
        table.add_row(right, word, escape(outcome.message or ""))
    return table
