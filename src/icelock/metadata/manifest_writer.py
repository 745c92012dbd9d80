"""Writes one v3 manifest as an AGS1 file under a new key.

A PyIceberg ``ManifestWriter``, used by PyIceberg's snapshot producers; entries go to fastavro one by one. The row
for the manifest list has the encrypted length (field 501) and the key metadata (field 519). A manifest holds either data files or
delete files, and says which in its header (``content``) and its row (field 517).

Not here: which entries there are (``table``), the list (``metadata.manifest_list``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self

from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    UNASSIGNED_SEQ,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntryStatus,
    ManifestWriter,
    construct_partition_summaries,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.manifest import ManifestEntry as IcebergManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from icelock.errors import PolicyError
from icelock.format.key_metadata import KeyMetadata
from icelock.io.file_io import EncryptingFileIO
from icelock.metadata.avro_file import AvroFileWriter, avro_schema, with_int_equality_ids
from icelock.metadata.canonical_json import dumps, schema_json, spec_field_object
from icelock.metadata.manifest import ManifestFile
from icelock.metadata.stored_schema import written_form
from icelock.metadata.table_metadata import with_sources
from icelock.properties import ENCRYPTED_VERSION
from icelock.secret import SecretBytes

_FIELDS = tuple(field.name for field in DATA_FILE_TYPE[ENCRYPTED_VERSION].fields)


class EncryptedManifestWriter(ManifestWriter):
    """A manifest writer whose file is encrypted; ``schemas`` are all of the table, one of which has source columns that were dropped.

    Raises (from ``add_entry``):
        PolicyError: an added file has no key metadata, so it is plain (older ones pass if the policy allows plain files), or key
            metadata with another key length or file length, or with another file's key.
        FormatError: its key metadata is invalid.
        ValueError: a data file in a manifest of delete files, or vice versa.
    """

    def __init__(  # noqa: PLR0913 - what a manifest is made of
        self,
        io: EncryptingFileIO,
        *,
        location: str,
        spec: PartitionSpec,
        schema: Schema,
        snapshot_id: int,
        content: ManifestContent = ManifestContent.DATA,
        schemas: Iterable[Schema] = (),
    ) -> None:
        self._output = io.new_encrypted_output(location)
        super().__init__(spec, schema, self._output, snapshot_id, "deflate")
        self._content = content
        self._sources = with_sources(schema, [spec], schemas)
        self._avro: AvroFileWriter | None = None
        self._avro_names: tuple[str, ...] = ()
        self._prefixes: Sequence[bytes | None] = ()
        self._io = io
        self._file_of: dict[SecretBytes, str] = {}

    def content(self) -> ManifestContent:
        """Whether the manifest holds data files or delete files."""
        return self._content

    @property
    def version(self) -> int:  # type: ignore[override]
        """The format version."""
        return ENCRYPTED_VERSION

    def prepare_entry(self, entry: IcebergManifestEntry) -> IcebergManifestEntry:
        """Return the entry unchanged: nothing is filled in before writing."""
        return entry

    def __enter__(self) -> Self:
        # Partition fields are optional, as in Java: a required column has nulls where the struct around it is null.
        known = self._spec.partition_type(self._sources)
        partition = StructType(*(field.model_copy(update={"required": False}) for field in known.fields))
        data_file = with_int_equality_ids(data_file_with_partition(partition, ENCRYPTED_VERSION))
        schema = manifest_entry_schema_with_data_file(ENCRYPTED_VERSION, data_file)
        avro = avro_schema(schema, "manifest_entry")
        self._avro_names = _partition_names(avro)
        header = {
            "schema": schema_json(self._schema),
            "partition-spec": dumps([spec_field_object(field) for field in self._spec.fields]),
            "partition-spec-id": str(self._spec.spec_id),
            "format-version": str(ENCRYPTED_VERSION),
            "content": "data" if self._content == ManifestContent.DATA else "deletes",
        }
        form = written_form(avro)
        self._prefixes = [form.prefixes.get(position) for position in range(len(self._avro_names))]
        self._avro = AvroFileWriter(self._output, avro, schema, header, encoded_as=form.schema if form.prefixes else None)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.closed = True
        if self._avro is not None:
            self._avro.__exit__(kind, error, trace)

    def tell(self) -> int:
        """Return the plain bytes written so far."""
        return self._avro.tell() if self._avro else 0

    def add_entry(self, entry: IcebergManifestEntry) -> Self:
        """Add an entry whose status and numbers are already set."""
        data_file = entry.data_file
        self._check_encrypted(entry)
        if (data_file.content == DataFileContent.DATA) != (self._content == ManifestContent.DATA):
            raise ValueError(f"{data_file.file_path} ({data_file.content.name}) does not belong in a manifest of {self._content.name}")
        if self._avro is None:
            raise RuntimeError("the manifest writer is not open")
        self._count(entry)
        self._partitions.append(data_file.partition)
        self._avro.write(self._row(entry))
        return self

    def to_manifest_file(self) -> ManifestFile:
        """Return the row for the manifest list; the file must be closed."""
        key_metadata = self._output.key_metadata
        unassigned = self._min_sequence_number is None
        return ManifestFile.from_args(
            manifest_path=self._output.location,
            manifest_length=key_metadata.encrypted_length,
            partition_spec_id=self._spec.spec_id,
            content=self.content(),
            sequence_number=UNASSIGNED_SEQ,
            min_sequence_number=UNASSIGNED_SEQ if unassigned else self._min_sequence_number,
            added_snapshot_id=self._snapshot_id,
            added_files_count=self._added_files,
            existing_files_count=self._existing_files,
            deleted_files_count=self._deleted_files,
            added_rows_count=self._added_rows,
            existing_rows_count=self._existing_rows,
            deleted_rows_count=self._deleted_rows,
            partitions=construct_partition_summaries(self._spec, self._sources, self._partitions),
            key_metadata=key_metadata.encode(),
            first_row_id=None,
        )

    def _check_encrypted(self, entry: IcebergManifestEntry) -> None:
        file = entry.data_file
        if len(file._data) != len(_FIELDS):  # noqa: SLF001 - PyIceberg's Record
            _refuse(
                file, "it is described by PyIceberg's DataFile of another format version; make it with icelock.metadata.manifest.DataFile"
            )
        if file.key_metadata is None:
            if entry.status == ManifestEntryStatus.ADDED or not self._io.allow_plaintext:
                _refuse(file, "the file has no key metadata, so it is plain")
            return
        if entry.status != ManifestEntryStatus.ADDED:
            return
        key = KeyMetadata.decode(file.key_metadata)
        wanted = self._io.manager.data_key_length
        if len(key.dek) != wanted or not key.aad_prefix:
            _refuse(file, f"its key metadata must have a key of {wanted} bytes, as encryption.data-key-length says, and an AAD prefix")
        # Java sometimes leaves the length out for Parquet; an AGS1 stream without it could be cut unnoticed.
        if key.encrypted_length != file.file_size_in_bytes and (key.encrypted_length is not None or file.file_format != FileFormat.PARQUET):
            _refuse(file, f"its key metadata says {key.encrypted_length} bytes, its entry {file.file_size_in_bytes}")
        if self._file_of.setdefault(key.dek, file.file_path) != file.file_path:
            _refuse(file, f"it has the key of {self._file_of[key.dek]}; every file needs its own key")

    def _count(self, entry: IcebergManifestEntry) -> None:
        rows = entry.data_file.record_count
        if entry.status == ManifestEntryStatus.ADDED:
            self._added_files += 1
            self._added_rows += rows
        elif entry.status == ManifestEntryStatus.EXISTING:
            self._existing_files += 1
            self._existing_rows += rows
        else:
            self._deleted_files += 1
            self._deleted_rows += rows
        live = entry.status != ManifestEntryStatus.DELETED and entry.sequence_number is not None
        if live and (self._min_sequence_number is None or entry.sequence_number < self._min_sequence_number):  # type: ignore[operator]
            self._min_sequence_number = entry.sequence_number

    def _row(self, entry: IcebergManifestEntry) -> dict[str, Any]:
        data = dict(zip(_FIELDS, entry.data_file._data, strict=True))  # noqa: SLF001 - PyIceberg's Record
        data["content"] = int(data["content"])
        data["file_format"] = str(data["file_format"].value)
        stored = zip(self._prefixes, entry.data_file.partition._data, strict=True)  # noqa: SLF001
        values = [value if prefix is None or value is None else prefix + value for prefix, value in stored]
        data["partition"] = dict(zip(self._avro_names, values, strict=True))
        for name in _MAPS:
            if data[name] is not None:
                data[name] = [{"key": key, "value": value} for key, value in dict(data[name]).items()]
        return {
            "status": int(entry.status),
            "snapshot_id": entry.snapshot_id,
            "sequence_number": entry.sequence_number,
            "file_sequence_number": entry.file_sequence_number,
            "data_file": data,
        }


def _refuse(file: DataFile, why: str) -> NoReturn:
    raise PolicyError(f"refused to add {file.file_path} to an encrypted table: {why}")


_MAPS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


def _partition_names(avro: dict[str, Any]) -> tuple[str, ...]:
    data_file = next(field for field in avro["fields"] if field["name"] == "data_file")
    partition = next(field for field in data_file["type"]["fields"] if field["name"] == "partition")
    return tuple(field["name"] for field in partition["type"]["fields"])
