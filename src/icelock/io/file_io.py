"""``EncryptingFileIO``: the only way to open or create files of an encrypted table.

It wraps the storage's PyIceberg FileIO and knows the table's key manager. The parent's key metadata decides which file is
encrypted, never the file's bytes. Plain output is refused (case C-65): ``new_output`` gives a handle for
metadata.json only; everything else goes through ``new_encrypted_output``.

Not here: the stream (``io.streams``), Parquet's own encryption (``io.parquet``), keys (``keys.manager``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO, InputFile, OutputFile

from icelock.errors import KeyUnavailableError, PolicyError
from icelock.format.ags1 import MAGIC
from icelock.format.key_metadata import KeyMetadata
from icelock.io.checked_io import CheckedFileIO
from icelock.io.files import EncryptedInputFile, EncryptedOutputFile
from icelock.io.plain_input import key_is_missing, plain_refused
from icelock.keys.entropy import Entropy

if TYPE_CHECKING:
    from icelock.keys.manager import EncryptionManager

METADATA_SUFFIX = ".metadata.json"


class EncryptingFileIO(FileIO):
    """Storage access of one version of one encrypted table.

    ``inner`` is the storage's own FileIO; ``manager`` returns the key manager when a key is first needed; ``allow_plaintext`` is
    the catalog's policy for files without key metadata (``icelock.plaintext-files``). It is not pickled: executors get the
    inner FileIO and keys of their own files.
    """

    def __init__(self, inner: FileIO, *, manager: Callable[[], EncryptionManager], entropy: Entropy, allow_plaintext: bool = False) -> None:
        super().__init__(inner.properties)
        self.inner = inner
        self._make_manager = manager
        self.entropy = entropy
        self.allow_plaintext = allow_plaintext

    @cached_property
    def manager(self) -> EncryptionManager:
        """The table's key manager.

        Raises:
            KeyUnavailableError: no KMS is configured.
        """
        return self._make_manager()

    def new_input(self, location: str) -> InputFile:
        """Return a handle to read the stored bytes, not decrypted."""
        return self.inner.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Return a handle to write a metadata.json.

        Raises:
            PolicyError: any other file, which would be plain.
        """
        if not location.endswith(METADATA_SUFFIX) and not location.endswith(".metadata.json.gz"):
            raise PolicyError(f"refused to write {location} in the clear: the table is encrypted; write through icelock's table methods")
        return self.inner.new_output(location)

    def new_encrypted_output(self, location: str) -> EncryptedOutputFile:
        """Return a handle to write an AGS1 file under a new key."""
        return EncryptedOutputFile(self.inner.new_output(location), self.manager.mint_file_key(), self.entropy)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file of the storage."""
        self.inner.delete(location)

    def __reduce__(self) -> Any:
        raise TypeError("EncryptingFileIO is not pickled: it holds a KMS client; send the inner FileIO and each file's key metadata")


def storage_of(io: FileIO) -> FileIO:
    """Return the storage's own FileIO, which neither decrypts nor knows keys."""
    return io.inner if isinstance(io, EncryptingFileIO | CheckedFileIO) else io


def open_input(io: FileIO, location: str, key_metadata: bytes | None) -> InputFile:
    """Return a handle to read plain bytes, decrypted when the parent has key metadata for the file.

    Raises:
        PolicyError: no key metadata in an encrypted table, and the policy does not allow plain files.
        KeyUnavailableError: no key metadata, the policy allows plain files, but the file is encrypted.
        FormatError: invalid key metadata.
    """
    if key_metadata is not None:
        return EncryptedInputFile(storage_of(io).new_input(location), KeyMetadata.decode(key_metadata))
    if isinstance(io, EncryptingFileIO) and not io.allow_plaintext:
        raise plain_refused(f"{location} has no key metadata")
    plain = io.new_input(location)
    if isinstance(io, EncryptingFileIO):
        _refuse_encrypted(plain)
    return plain


def _refuse_encrypted(file: InputFile) -> None:
    """The policy allows plain files, not encrypted ones whose key was lost."""
    with file.open() as stream:
        first = stream.read(len(MAGIC))
    if first == MAGIC:
        raise key_is_missing(file.location)


def manager_of(io: FileIO, *, what: str) -> EncryptionManager:
    """Return the key manager behind ``io``.

    Raises:
        KeyUnavailableError: ``io`` has none; the message says ``what`` is encrypted.
    """
    if isinstance(io, EncryptingFileIO):
        return io.manager
    raise KeyUnavailableError(f"{what} is encrypted, but there is no key manager: load the table through icelock with a KMS configured")
