"""``icelock keys``: the keys of a table as a tree: master keys, KEKs, manifest lists, and how many files hang on each.

Only ids, ages and numbers; key bytes, wrapped ones too, are never shown. Manifest lists are read for the numbers of manifests and files,
which needs the key service once for each KEK; where that fails the tree is shown without, and the exit code is 2.

Not here: whether every file has a key and opens (``icelock.audit``), what leaving a key would need (``cli.rotate``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from icelock.cli.describe import state
from icelock.cli.exit_codes import Code
from icelock.cli.output import emit, escape, json_option, progress
from icelock.cli.table_names import full_name, load_any_table, table_argument
from icelock.errors import IcelockError
from icelock.shown import utc

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.tree import Tree

    from icelock.format.encrypted_key import EncryptedKey
    from icelock.kms.client import KmsClient
    from icelock.table.plain import AnyTable
    from icelock.table.table import Table

_DAY_MS: Final = 86_400_000
_SHOWN: Final = 12
_NOT_COUNTED: Final = {"manifests": None, "data-files": None, "delete-files": None}


@click.command()
@table_argument
@json_option
def keys(table: str, catalog: str | None) -> None:
    """Show the keys of TABLE as a tree: which opens which, down to the files.

    TABLE is CATALOG.NAMESPACE.TABLE, or NAMESPACE.TABLE of the default catalog. A master key in the key service wraps KEKs, each KEK the
    keys of manifest lists, one for each snapshot; a list has the keys of its manifests, and a manifest those of its files. Only ids and
    numbers are shown, never a key.
    """
    loaded = load_any_table(catalog, table)
    with progress(f"keys of {table}") as told:
        found = key_tree(loaded, told)
    emit(found, lambda: view(found))
    if found["not-counted"]:
        click.get_current_context().exit(Code.COULD_NOT)


def key_tree(table: AnyTable, told: Callable[[int, int], None] = lambda _done, _whole: None) -> dict[str, Any]:
    """Return the tree of a table's keys, as JSON has it."""
    from icelock.table.table import Table

    said = {"table": full_name(table), **state(table.metadata)}
    if said["state"] == "plain" or not isinstance(table, Table):
        return {**said, "master-keys": [], "unneeded-keys": [], "plain-snapshots": [], "not-counted": []}
    masters, why = _masters(table, told)
    needed = {snapshot.key_id for snapshot in table.metadata.snapshots}
    entries = table.metadata.encryption_keys
    keks = {kek["kek"] for master in masters for kek in master["keks"]}
    return {
        **said,
        "master-keys": masters,
        "unneeded-keys": sorted(entry.key_id for entry in entries if entry.key_id not in needed | keks),
        "plain-snapshots": [one.snapshot_id for one in table.metadata.snapshots if one.key_id is None],
        "not-counted": why,
    }


def _masters(table: Table, told: Callable[[int, int], None]) -> tuple[list[dict[str, Any]], list[str]]:
    from icelock.keys.key_entries import KeyEntries
    from icelock.table.maintenance.rotation.key_uses import sealing_keks

    metadata, entries = table.metadata, KeyEntries(table.metadata.encryption_keys)
    kms, why = _kms(table)
    sealed: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    sealed_by = sealing_keks(metadata)
    for number, snapshot in enumerate(metadata.snapshots, start=1):
        kek = sealed_by.get(snapshot.snapshot_id)
        counts, problem = (dict(_NOT_COUNTED), None) if why or kek is None else _counts(table, snapshot)
        why += [problem] if problem is not None and problem not in why else []
        if kek is not None:
            sealed[kek].append(_snapshot(metadata, snapshot) | counts)
        told(number, len(metadata.snapshots))
    masters: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in sorted(filter(entries.is_kek, entries), key=lambda one: _made_ms(one) or 0):
        masters[entry.encrypted_by_id].append(_kek(table, entry, kms) | {"snapshots": sealed[entry.key_id]})
    return [{"master-key-id": name, "keks": keks} for name, keks in masters.items()], why


def _kms(table: Table) -> tuple[KmsClient | None, list[str]]:
    try:
        return table.encryption.kms(), []
    except IcelockError as e:
        return None, [" ".join(str(e).split())]


def _kek(table: Table, entry: EncryptedKey, kms: KmsClient | None) -> dict[str, Any]:
    from icelock.kms import ask

    made = _made_ms(entry)
    version = None if kms is None else ask.version_of(kms, entry.encrypted_key_metadata, entry.encrypted_by_id)
    age = None if made is None else max(0, table.encryption.clock() - made) // _DAY_MS
    return {"kek": entry.key_id, "master-key-version": version, "created": utc(made), "age-days": age}


def _made_ms(kek: EncryptedKey) -> int | None:
    from icelock.keys.kek import created_ms

    try:
        return created_ms(kek)
    except IcelockError:
        return None  # the audit says what is wrong with it


def _snapshot(metadata: Any, snapshot: Any) -> dict[str, Any]:
    from icelock.cli.history import snapshot_row

    row = snapshot_row(metadata, snapshot)
    return {"manifest-list-key": snapshot.key_id, **{name: row[name] for name in ("snapshot-id", "at", "current", "refs")}}


def _counts(table: Table, snapshot: Any) -> tuple[dict[str, Any], str | None]:
    """Return how many manifests and files a snapshot has, or why it cannot be told."""
    from pyiceberg.manifest import ManifestContent

    try:
        manifests = snapshot.manifests(table.io)
    except (IcelockError, OSError) as e:
        return dict(_NOT_COUNTED), " ".join(str(e).split())
    files = dict.fromkeys(ManifestContent, 0)
    for one in manifests:
        files[one.content] += (one.added_files_count or 0) + (one.existing_files_count or 0)
    data, deletes = files[ManifestContent.DATA], files[ManifestContent.DELETES]
    return {"manifests": len(manifests), "data-files": data, "delete-files": deletes}, None


def view(found: dict[str, Any]) -> RenderableType:
    """Return what people see of a tree."""
    from rich.console import Group
    from rich.tree import Tree

    name = escape(found["table"])
    if found["state"] == "plain":
        return f"{name} is plain (format version {found['format-version']}): it has no keys, and who reads its storage reads its rows"
    tree = Tree(f"{name} is encrypted under master key {escape(str(found['master-key-id']))}")
    for master in found["master-keys"]:
        branch = tree.add(f"[bold]master key[/] {escape(master['master-key-id'])}, in the key service")
        for kek in master["keks"]:
            _add_kek(branch, kek)
    if found["unneeded-keys"]:
        tree.add(f"{len(found['unneeded-keys'])} key entries that nothing needs; the next expiry removes them")
    if found["plain-snapshots"]:
        tree.add(f"[bold red]{len(found['plain-snapshots'])} snapshots without a key[/]: icelock audit says more")
    return Group(tree, *(f"[bold red]not counted[/] {escape(why)}" for why in found["not-counted"]))


def _add_kek(branch: Tree, kek: dict[str, Any]) -> None:
    version = f", wrapped by its version {kek['master-key-version']}" if kek["master-key-version"] is not None else ""
    age = "of unknown age" if kek["created"] is None else f"of {kek['created']}, {kek['age-days']} of 730 days old"
    own = kek["snapshots"]
    node = branch.add(f"[bold]KEK[/] {escape(kek['kek'])}{escape(version)} {age}: {len(own)} {'list' if len(own) == 1 else 'lists'}")
    if len(own) > _SHOWN:
        node.add(f"{len(own) - _SHOWN} older snapshots")
    for one in own[-_SHOWN:]:
        refs = f" ({', '.join(one['refs'])})" if one["refs"] else ""
        counts = "not counted"
        if one["manifests"] is not None:
            deletes = f", {one['delete-files']} delete files" if one["delete-files"] else ""
            counts = f"{one['manifests']} manifests, {one['data-files']} data files{deletes}, a key each"
        node.add(f"snapshot {one['snapshot-id']}{escape(refs)}, key {escape(one['manifest-list-key'])}: {counts}")
