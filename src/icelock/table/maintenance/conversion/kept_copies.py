"""Encrypted copies that an earlier call of a conversion finished before it was killed, by what they are copies of.

A record of the progress file (``table.maintenance.conversion.progress_file``) has a digest of the copied file: its ``Source``, with all
delete files that were applied and the table's form, its size and its rows; and the manifest entries of the copies, with their keys. A copy
is used again if the plan has a file of that digest, and storage has the copy, of that length and under that key: it is opened, and its
footer or first block authenticates.
What is missing or not the same is written again, under another name.

A record that another version of icelock wrote, of another form or with fields of entries that this one does not know, is not used: its
data file is written again.

Copies are looked at after all else of a round was written, so that little time passes until the switch. None of them is ever deleted here:
those that no table needs are left over.

Not here: what is written (``table.maintenance.conversion.convert_files``).
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.manifest import FileFormat

from icelock.errors import FormatError, IntegrityError
from icelock.format.key_metadata import KeyMetadata
from icelock.io.files import EncryptedInputFile
from icelock.io.parquet import ParquetInput
from icelock.metadata.file_values import file_of, values_of
from icelock.metadata.manifest import DATA_FILE_FIELDS, DataFile
from icelock.plan.task import ScanTask
from icelock.table.maintenance.conversion.progress_file import ProgressFile
from icelock.table.maintenance.rotation.copied_files import at_once

_FILES: Final = "files"
_OF: Final = "of"
_logger = logging.getLogger(__name__)


class KeptCopies:
    """The copies in a progress file; ``paths`` are theirs, those of this call too."""

    def __init__(self, file: ProgressFile) -> None:
        self._file = file
        self._records: dict[str, bytes] = {}
        self.paths: set[str] = set()
        unknown = 0
        for record in file.found:
            try:
                name, files = _read(record)
            except (ValueError, KeyError, TypeError):
                unknown += 1
                continue
            self._records[name] = record
            self.paths.update(one.file_path for one in files)
        if unknown:
            _logger.warning(
                "progress file %s has %d records that this version of icelock does not know: what they stand for is written again; "
                "icelock leftovers then lists the first copies",
                file.path,
                unknown,
            )

    @property
    def place(self) -> str:
        """Where the progress file is."""
        return str(self._file.path)

    def of(self, tasks: Mapping[tuple[Any, ...], ScanTask], form: tuple[Any, ...]) -> dict[tuple[Any, ...], list[DataFile]]:
        """Return the copies of those data files of a table of a form, by source, that an earlier call finished; not looked at yet."""
        names = {source: _name(source, form, task) for source, task in tasks.items()}
        return {source: _read(self._records[name])[1] for source, name in names.items() if name in self._records}

    def add(self, source: tuple[Any, ...], form: tuple[Any, ...], task: ScanTask, files: Iterable[DataFile]) -> None:
        """Keep the copies of a data file.

        Raises:
            PolicyError: the progress file cannot be written.
        """
        made = list(files)
        values = [[file.spec_id, {name: _plain(value) for name, value in values_of(file).items()}] for file in made]
        self._file.add(json.dumps({_OF: _name(source, form, task), _FILES: values}, separators=(",", ":")).encode())
        self.paths.update(file.file_path for file in made)


def are_there(io: FileIO, files: Iterable[list[DataFile]]) -> list[bool]:
    """Whether storage has the copies of each data file, all of them as they were written.

    Raises:
        OSError: the storage failed.
    """
    return at_once(lambda copies: all(_is_there(io, file) for file in copies), list(files))


def _is_there(io: FileIO, file: DataFile) -> bool:
    stored = io.new_input(file.file_path)
    if not stored.exists():
        return False
    try:
        key = KeyMetadata.decode(file.key_metadata or b"")
        with ParquetInput(stored, key) if file.file_format == FileFormat.PARQUET else EncryptedInputFile(stored, key).open():
            return True
    except (IntegrityError, FormatError) as e:
        _logger.warning("%s is not what was written: %s; it is written again", file.file_path, e)
        return False


def _name(source: tuple[Any, ...], form: tuple[Any, ...], task: ScanTask) -> str:
    """Return the digest of a data file as it is in a version of its table; the sources of a kept history do not have the table's form."""
    entry = (task.file_size, task.record_count, task.spec_id, task.partition, task.first_row_id, task.sequence_number)
    return sha256(repr(((source, form), entry)).encode()).hexdigest()


def _read(record: bytes) -> tuple[str, list[DataFile]]:
    """Return the name of what was copied, and the copies; a record in another form is a ValueError, KeyError or TypeError."""
    found = json.loads(record)
    files = []
    for spec_id, plain in found[_FILES]:
        values = {name: _value(value) for name, value in plain.items()}
        if set(values) != set(DATA_FILE_FIELDS):
            raise ValueError("other fields than those of this version's entries")
        files.append(file_of(int(spec_id), values))
    return str(found[_OF]), files


# Values that JSON does not have: an object with one name, which says what the value is.
_SPECIAL: Final[tuple[tuple[type, str, Callable[[Any], Any], Callable[[Any], Any]], ...]] = (
    (bytes, "bytes", lambda value: base64.b64encode(value).decode(), base64.b64decode),
    (float, "float", float.hex, float.fromhex),
    (Decimal, "decimal", str, Decimal),
    (UUID, "uuid", str, UUID),
    (dict, "map", lambda value: [[_plain(key), _plain(of)] for key, of in value.items()], lambda pairs: {k: _value(v) for k, v in pairs}),
)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; a TypeError for one of another kind, which no manifest entry has."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    for kind, name, to_json, _ in _SPECIAL:
        if isinstance(value, kind):
            return {name: to_json(value)}
    raise TypeError(f"{type(value).__name__} is no value of a manifest entry")


def _value(plain: Any) -> Any:
    """Return the value that ``_plain`` was called on; a tuple is a list. Another kind is a ValueError, KeyError or TypeError."""
    if isinstance(plain, list):
        return [_value(one) for one in plain]
    if isinstance(plain, dict):
        [(name, inner)] = plain.items()
        return {known: of for _, known, _, of in _SPECIAL}[name](inner)
    return plain
