"""ORC types as Iceberg means them: attributes of the file's types say what ORC has no type for (spec, Appendix A, "ORC").

``iceberg.id`` is a field's id, and becomes the same metadata as a Parquet file has, so that all formats share one projection. Times are
longs with ``iceberg.long-type`` TIME, uuids and fixed bytes are binary with ``iceberg.binary-type``, fixed ones with ``iceberg.length``.

Not here: the file (``io.orc``), which columns are read as what (``arrow.read.project``).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as pat
from pyiceberg.schema import Schema
from pyiceberg.types import TimestamptzNanoType, TimestamptzType

from icelock.arrow.read.file_schema import FIELD_ID, FileField, walk
from icelock.arrow.types import is_list_like
from icelock.errors import FormatError

_ID: Final = b"iceberg.id"
_LONG: Final = b"iceberg.long-type"
_BINARY: Final = b"iceberg.binary-type"
_LENGTH: Final = b"iceberg.length"
_UUID_BYTES: Final = 16
_INSTANTS: Final = (TimestamptzType, TimestamptzNanoType)


def orc_fields(schema: pa.Schema, *, location: str) -> pa.Schema:
    """Return the schema that a file's columns are cast to, with Iceberg's types, and with field ids where the file has them.

    Raises:
        FormatError: an attribute is not what Iceberg writes.
    """
    try:
        return pa.schema([_field(field) for field in schema])
    except (KeyError, ValueError) as e:
        raise FormatError(f"{location}: the attributes of its ORC types are not Iceberg's ({e!r}); write it again with Java") from e


def check_zones(root: FileField, schema: Schema, *, location: str) -> None:
    """Refuse a timestamp that is read as one of the other kind.

    ORC's without zone is the wall time of whoever wrote it, and the file says in which zone: read as an instant it would be another one.
    Java refuses it, too; Hive's tables that were taken over by ``migrate`` have such files (iceberg issues 2245, 9784).

    Raises:
        FormatError: names the column.
    """
    kinds = {field_id: schema.find_type(field_id) for field_id in schema.field_ids}
    for names, field, _ in walk(root):
        instant = isinstance(kinds.get(field.field_id or 0), _INSTANTS)
        if pat.is_timestamp(field.arrow_type) and field.field_id in kinds and (field.arrow_type.tz is not None) != instant:
            stored, wanted = ("without", "an instant") if instant else ("with", "one without zone")
            raise FormatError(
                f"{location}: {'.'.join(names)!r} is a timestamp {stored} zone in this ORC file, and {wanted} in its table; write it again "
                "as Parquet with the engine that wrote it"
            )


def _field(field: pa.Field) -> pa.Field:
    given = field.metadata or {}
    metadata = {FIELD_ID: str(int(given[_ID])).encode()} if _ID in given else None
    return pa.field(field.name, _type(field.type, given), nullable=field.nullable, metadata=metadata)


def _type(stored: pa.DataType, given: dict[bytes, bytes]) -> pa.DataType:
    if pat.is_struct(stored):
        return pa.struct([_field(field) for field in stored])
    if pat.is_map(stored):
        return pa.map_(_field(stored.key_field), _field(stored.item_field))
    if is_list_like(stored):
        return pa.list_(_field(stored.value_field))
    if pat.is_int64(stored):
        return pa.time64("us") if given.get(_LONG) == b"TIME" else stored
    return _binary(given) if pat.is_binary(stored) else stored


def _binary(given: dict[bytes, bytes]) -> pa.DataType:
    meant = given.get(_BINARY)
    if meant == b"FIXED":
        return pa.binary(int(given[_LENGTH]))
    return pa.binary(_UUID_BYTES) if meant == b"UUID" else pa.binary()
