"""Mixed tables: encrypted, with plain files that their snapshots reach. Java leaves one when the key id is set on a table that has files.

What lacks a key lacks it in its parent: a manifest list in its snapshot, a manifest in the list, a file in the manifest. Only the client's
configuration lets such files be read (``icelock.plaintext-files``), since all that says so on storage can be written there by others.

Not here: reading plain files (``io.file_io``), the conversion that ends the mix (``table.maintenance.conversion.convert``).
"""

from __future__ import annotations

from icelock import properties as names
from icelock.errors import PolicyError
from icelock.table.guard.plain_origin import PlainOrigin
from icelock.table.maintenance.removal.deletable import read_lists, read_paths
from icelock.table.table import Table


def check_mixed(table: Table, *, key_id: str, data_key_length: int | None) -> None:
    """Check that an encrypted table can be converted: it is mixed, the client lets its plain files be read, and the keys are the table's.

    Raises:
        PolicyError: it is not so; nothing was written.
        KeyUnavailableError, FormatError, IntegrityError, OSError: a list or manifest cannot be read.
    """
    name, properties = ".".join(table.name()), table.metadata.properties
    if not is_mixed(table):
        raise PolicyError(f"table {name} is encrypted already: there is nothing to convert")
    wanted = {names.ENCRYPTION_KEY_ID: key_id, names.DATA_KEY_LENGTH: None if data_key_length is None else str(data_key_length)}
    for setting, value in wanted.items():
        if value is not None and value != properties.get(setting):
            raise PolicyError(
                f"table {name} is encrypted and has plain files; its {setting} is {properties.get(setting)!r}, not {value!r}: convert it "
                "with the one that it has, and rotate it afterwards"
            )
    origin = PlainOrigin.of(properties)
    if origin is not None:
        raise PolicyError(
            f"table {name} was converted, and has got plain files since. To convert it again, give up what is left of the first "
            f"conversion: take the property out (transaction.remove_properties({origin.name!r})); icelock leftovers lists its files then"
        )
    if not table.io.allow_plaintext:
        raise PolicyError(
            f"table {name} is encrypted and has plain files. If they are from before its key id was set, and you trust them, set the "
            f"catalog property {names.PLAINTEXT_FILES}={names.PLAINTEXT_FILES_ALLOW} for this call, so that they may be read"
        )


def is_mixed(table: Table) -> bool:
    """Whether a snapshot of an encrypted table reaches a plain file: of one without, all lists and manifests are read.

    Raises:
        KeyUnavailableError, FormatError, IntegrityError, OSError: a list or manifest cannot be read.
    """
    snapshots = table.metadata.snapshots
    if any(getattr(snapshot, "key_id", None) is None for snapshot in snapshots):
        return True
    manifests = read_lists(snapshots, table.io).values()
    if any(manifest.key_metadata is None for manifest in manifests):
        return True
    return next(read_paths(manifests, table.io, live_only=True, plain_only=True), None) is not None
