"""The two table updates for encryption keys, registered with PyIceberg's dispatcher.

Their JSON is the REST catalog's: ``{"action": "add-encryption-key", "encryption-key": {...}}`` and ``{"action":
"remove-encryption-key", "key-id": "..."}``. Keys are added in the same update list as the snapshot that needs them, before it.

Not here: which keys to add (``keys.manager``), whether they may be (``table.guard``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PlainSerializer, PlainValidator
from pyiceberg.table.update import _apply_table_update
from pyiceberg.typedef import IcebergBaseModel

from icelock.errors import FormatError, PolicyError
from icelock.format.encrypted_key import EncryptedKey
from icelock.metadata.table_metadata import TableMetadataV3

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import _TableMetadataUpdateContext


def _parse_key(value: Any) -> Any:
    return EncryptedKey.from_json(value) if isinstance(value, dict) else value


if TYPE_CHECKING:
    KeyEntry = EncryptedKey
else:  # pydantic must not look into the dataclass
    KeyEntry = Annotated[Any, PlainValidator(_parse_key), PlainSerializer(lambda key: key.to_json())]


class AddEncryptionKeyUpdate(IcebergBaseModel):
    """Add one entry to ``encryption-keys``."""

    action: Literal["add-encryption-key"] = Field(default="add-encryption-key")
    encryption_key: KeyEntry = Field(alias="encryption-key")


class RemoveEncryptionKeyUpdate(IcebergBaseModel):
    """Remove the entry with this id from ``encryption-keys``."""

    action: Literal["remove-encryption-key"] = Field(default="remove-encryption-key")
    key_id: str = Field(alias="key-id")


def _keyed(metadata: TableMetadata) -> TableMetadataV3:
    if not isinstance(metadata, TableMetadataV3):
        msg = f"encryption keys need format version 3, the table has version {metadata.format_version}"
        raise PolicyError(msg)
    return metadata


def _add_key(update: AddEncryptionKeyUpdate, base_metadata: TableMetadata, context: _TableMetadataUpdateContext) -> TableMetadata:
    base = _keyed(base_metadata)
    known = base.encryption_key(update.encryption_key.key_id)
    if known is not None:
        if known == update.encryption_key:
            return base
        msg = f"key id {update.encryption_key.key_id} is already there with another content"
        raise FormatError(msg)
    context.add_update(update)  # type: ignore[arg-type]
    return base.model_copy(update={"encryption_keys": [*base.encryption_keys, update.encryption_key]})


def _remove_key(update: RemoveEncryptionKeyUpdate, base_metadata: TableMetadata, context: _TableMetadataUpdateContext) -> TableMetadata:
    base = _keyed(base_metadata)
    if base.encryption_key(update.key_id) is None:
        return base
    context.add_update(update)  # type: ignore[arg-type]
    return base.model_copy(update={"encryption_keys": [key for key in base.encryption_keys if key.key_id != update.key_id]})


# Called, not as decorators: the union of PyIceberg's updates is closed to type checkers.
_register: Any = _apply_table_update.register
_register(AddEncryptionKeyUpdate, _add_key)
_register(RemoveEncryptionKeyUpdate, _remove_key)
