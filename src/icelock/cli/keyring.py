"""``icelock keyring``: make and change the keyring file of the ``local`` KMS.

Not here: the file itself (``icelock.kms.keyring_file``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from icelock.cli.output import emit, escape, json_option
from icelock.errors import PolicyError
from icelock.keys.manager import system_clock_ms
from icelock.kms.keyring import KEY_LENGTH, KeyFileProtection, Keyring, KeyState, Protection
from icelock.kms.keyring_file import change_keyring, create_keyring, load_keyring, new_passphrase_protection
from icelock.kms.unlock import (
    PASSPHRASE_ENV_DEFAULT,
    KeyFileUnlocker,
    PassphraseUnlocker,
    RememberingUnlocker,
    make_key_file,
    passphrase_from_environment,
)
from icelock.properties import KMS_LOCAL_KEY_FILE, KMS_LOCAL_PASSPHRASE_ENV, KMS_LOCAL_PATH, KMS_TYPE
from icelock.secret import SecretBytes

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_PATH = click.Path(path_type=Path, dir_okay=False)


def _on_keyring(command: Callable[..., None]) -> Callable[..., None]:
    key_file = click.option("--key-file", type=_PATH, help="Key file that unlocks the keyring, instead of a passphrase.")
    variable = click.option(
        "--passphrase-env",
        metavar="NAME",
        default=PASSPHRASE_ENV_DEFAULT,
        show_default=True,
        help="Environment variable with the passphrase; asked for at a terminal if it is not set.",
    )
    return click.argument("path", type=_PATH)(key_file(variable(json_option(command))))


@click.group()
def keyring() -> None:
    """Make and change the keyring file of the local KMS (encryption.kms-type = local)."""


@keyring.command()
@_on_keyring
@click.argument("key_ids", metavar="[KEY_ID]...", nargs=-1)
def init(path: Path, key_ids: tuple[str, ...], key_file: Path | None, passphrase_env: str) -> None:
    """Make the keyring PATH, with a master key for each KEY_ID.

    With --key-file, the key file is made too if it is not there.
    """
    if path.exists():
        raise PolicyError(f"keyring {path} already exists; add keys with `icelock keyring add`, or name another file")
    protection: Protection = new_passphrase_protection() if key_file is None else KeyFileProtection()
    keys = Keyring(protection=protection)
    for key_id in key_ids:
        keys = keys.added(key_id, key=_new_key(), now_ms=system_clock_ms())
    made = key_file if key_file is not None and not key_file.exists() else None
    if made is not None:
        make_key_file(made)
    try:
        unlocker = _unlocker(key_file, passphrase_env, confirm=True)
        # The key is derived before the lock is taken, because a person may have to type.
        unlocker.keyring_key(protection)
        create_keyring(path, unlocker, keys)
    except BaseException:
        if made is not None and not path.exists():
            made.unlink(missing_ok=True)  # it opens nothing
        raise
    properties = _catalog_properties(path, key_file, passphrase_env)
    emit(_as_json(path, keys) | {"catalog-properties": properties}, lambda: _made(path, keys, properties))


@keyring.command()
@_on_keyring
@click.argument("key_id")
def add(path: Path, key_id: str, key_file: Path | None, passphrase_env: str) -> None:
    """Add a new master key KEY_ID to the keyring PATH."""
    _change(path, key_file, passphrase_env, lambda old: old.added(key_id, key=_new_key(), now_ms=system_clock_ms()))


@keyring.command()
@_on_keyring
@click.argument("key_id")
def rotate(path: Path, key_id: str, key_file: Path | None, passphrase_env: str) -> None:
    """Give the master key KEY_ID a new version; what older versions wrapped still opens."""
    _change(path, key_file, passphrase_env, lambda old: old.rotated(key_id, key=_new_key(), now_ms=system_clock_ms()))


@keyring.command()
@_on_keyring
@click.argument("key_id")
def disable(path: Path, key_id: str, key_file: Path | None, passphrase_env: str) -> None:
    """Stop all use of the master key KEY_ID, reading included, until it is enabled again."""
    _change(path, key_file, passphrase_env, lambda old: old.with_state(key_id, KeyState.DISABLED))


@keyring.command()
@_on_keyring
@click.argument("key_id")
def enable(path: Path, key_id: str, key_file: Path | None, passphrase_env: str) -> None:
    """Allow the use of the master key KEY_ID again."""
    _change(path, key_file, passphrase_env, lambda old: old.with_state(key_id, KeyState.ENABLED))


@keyring.command("list")
@_on_keyring
def list_(path: Path, key_file: Path | None, passphrase_env: str) -> None:
    """List the master keys of the keyring PATH. Key bytes are never shown."""
    _emit_keyring(path, load_keyring(path, _unlocker(key_file, passphrase_env)))


def _change(path: Path, key_file: Path | None, passphrase_env: str, change: Callable[[Keyring], Keyring]) -> None:
    unlocker = _unlocker(key_file, passphrase_env)
    # Unlocked once before the lock is taken, because a person may have to type.
    load_keyring(path, unlocker)
    _emit_keyring(path, change_keyring(path, unlocker, change))


def _unlocker(key_file: Path | None, variable: str, *, confirm: bool = False) -> RememberingUnlocker:
    if key_file is not None:
        return RememberingUnlocker(KeyFileUnlocker(path=key_file))
    if variable not in os.environ and sys.stdin.isatty():
        prompt = partial(click.prompt, "Passphrase of the keyring", hide_input=True, confirmation_prompt=confirm, err=True)
        return RememberingUnlocker(PassphraseUnlocker(read=lambda: str(prompt())))
    return RememberingUnlocker(PassphraseUnlocker(read=passphrase_from_environment(variable)))


def _new_key() -> SecretBytes:
    return SecretBytes(os.urandom(KEY_LENGTH))


def _catalog_properties(path: Path, key_file: Path | None, variable: str) -> dict[str, str]:
    properties = {KMS_TYPE: "local", KMS_LOCAL_PATH: str(path.absolute())}
    if key_file is not None:
        properties[KMS_LOCAL_KEY_FILE] = str(key_file.absolute())
    elif variable != PASSPHRASE_ENV_DEFAULT:
        properties[KMS_LOCAL_PASSPHRASE_ENV] = variable
    return properties


def _emit_keyring(path: Path, keys: Keyring) -> None:
    emit(_as_json(path, keys), lambda: _table(path, keys))


def _as_json(path: Path, keys: Keyring) -> dict[str, Any]:
    return {
        "path": str(path),
        "keys": [
            {
                "key-id": key.key_id,
                "state": key.state.value,
                "versions": [{"version": v.version, "created": _utc(v.created_ms)} for v in key.versions],
            }
            for key in keys.keys
        ],
    }


def _made(path: Path, keys: Keyring, properties: dict[str, str]) -> RenderableType:
    from rich.console import Group

    lines = "\n".join(escape(f"  {name} = {value}") for name, value in properties.items())
    return Group(_table(path, keys), "Catalog properties:", lines)


def _table(path: Path, keys: Keyring) -> Table:
    from rich.table import Table

    table = Table(title=f"keyring {escape(str(path))}", title_justify="left")
    for column in ("key id", "state", "versions", "newest version made (UTC)"):
        table.add_column(column, overflow="fold")
    for key in keys.keys:
        colour = "green" if key.state is KeyState.ENABLED else "red"
        table.add_row(escape(key.key_id), f"[{colour}]{key.state.value}[/]", str(key.newest.version), _utc(key.newest.created_ms))
    return table


def _utc(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, tz=UTC).isoformat(sep=" ", timespec="seconds")
