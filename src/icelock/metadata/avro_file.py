"""Avro containers of manifests and manifest lists, through fastavro, into an AGS1 stream.

Deflate; record names ``manifest_file`` and ``manifest_entry``; every field with its ``field-id`` (format.md "Avro containers").
The schema comes from PyIceberg's own conversion, with two corrections that Java needs or writes: ``equality_ids`` are
ints, and the header key ``iceberg.schema`` is there.

Not here: what a row holds (``metadata.manifest_writer``, ``metadata.manifest_list``).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, cast

from fastavro import parse_schema
from fastavro.write import Writer
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from icelock.io.files import EncryptedOutputFile
from icelock.metadata.canonical_json import schema_json
from icelock.metadata.stored_schema import named_once

_EQUALITY_IDS = 135
_BLOCK_SIZE = 1 << 18
"""Plain bytes of an Avro block: large enough that blocks cost readers no time, small enough to be skipped one by one."""


def avro_schema(schema: Schema, name: str) -> dict[str, Any]:
    """Return the Avro schema of an Iceberg schema, with field ids, under the record name ``name``."""
    converted: dict[str, Any] = AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name)  # type: ignore[assignment]
    return converted  # a named type may occur several times; the header has it once


def with_int_equality_ids(data_file: StructType) -> StructType:
    """Return the data_file struct with ``equality_ids`` as ints, as Java writes them (PyIceberg uses longs)."""
    ints = ListType(element_id=136, element_type=IntegerType(), element_required=True)
    fields = data_file.fields
    return StructType(*(field.model_copy(update={"field_type": ints}) if field.field_id == _EQUALITY_IDS else field for field in fields))


class AvroFileWriter:
    """Writes one Avro file; on an exception inside the ``with`` block the file is aborted and left without a key.

    ``encoded_as`` is the schema that rows are encoded by, if it differs from the header's (``metadata.stored_schema``).
    """

    def __init__(
        self,
        output: EncryptedOutputFile,
        schema: Mapping[str, Any],
        iceberg_schema: Schema,
        header: Mapping[str, str],
        *,
        encoded_as: Mapping[str, Any] | None = None,
    ) -> None:
        self._output = output
        self._stream = output.create(overwrite=False)
        self._raw_bytes = 0
        metadata = {**header, "iceberg.schema": schema_json(iceberg_schema)}
        stream: Any = self._stream  # any writable stream
        writer = Writer(stream, named_once(schema), codec="deflate", sync_interval=_BLOCK_SIZE, metadata=metadata)
        self._writer = cast("Any", writer)
        if encoded_as is not None:
            names: dict[str, Any] = {}
            self._writer.schema = parse_schema(named_once(encoded_as), names)
            self._writer._named_schemas = names  # noqa: SLF001 - of the schema above

    def write(self, row: Mapping[str, Any]) -> None:
        """Add one row."""
        self._writer.write(dict(row))

    def close(self) -> None:
        """Flush and close; the output then has its key metadata.

        Raises:
            IntegrityError: the storage does not have what was written.
        """
        self._writer.flush()
        self._stream.close()
        self._output.check_stored()

    def tell(self) -> int:
        """Return the number of plain bytes that have reached the stream."""
        return int(self._stream.tell())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self._output.abort()
