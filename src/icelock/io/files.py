"""PyIceberg's ``InputFile`` and ``OutputFile`` over one AGS1 file.

An `EncryptedInputFile` looks like the plain file: its length and its bytes are the plain ones. An `EncryptedOutputFile`
takes plain bytes; its length is the stored one, which manifest lists record (field 501), and after closing it has the
`KeyMetadata` that the parent must keep. An output file is written once, because its key is for one file.

Source: Java ``EncryptedInputFile``, ``EncryptedOutputFile``. Not here: which files are encrypted and who has the keys
(``io.file_io``), Parquet (``io.parquet``), deleting an aborted file (``io.listing``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from pyiceberg.io import InputFile, OutputFile

from icelock.errors import PolicyError
from icelock.format import ags1
from icelock.format.key_metadata import FileKey, KeyMetadata
from icelock.io.raw import Sink, Source
from icelock.io.stored import check_size
from icelock.io.streams import Ags1Reader, Ags1Writer
from icelock.keys.entropy import Entropy


class EncryptedInputFile(InputFile):
    """An AGS1 file that reads as its plain bytes.

    ``inner`` is the stored file, ``key_metadata`` comes from its parent.

    Raises:
        FormatError: The key metadata has no file length, or one that no AGS1 stream has.
    """

    def __init__(self, inner: InputFile, key_metadata: KeyMetadata) -> None:
        super().__init__(inner.location)
        self._inner = inner
        self._key_metadata = key_metadata
        self._length = ags1.plaintext_length(ags1.authenticated_length(key_metadata, inner.location))

    def __len__(self) -> int:
        """Return the plaintext length, from key metadata, without asking the storage."""
        return self._length

    def exists(self) -> bool:
        """Return whether the storage has the file."""
        return self._inner.exists()

    def open(self, seekable: bool = True) -> Ags1Reader:  # noqa: ARG002, FBT001, FBT002 - PyIceberg's signature
        """Return a seekable reader whose header, length and first block are already checked.

        Raises:
            FormatError: Not an AGS1 stream.
            IntegrityError: Bytes missing or left over, or a first block that does not authenticate.
            FileNotFoundError: The storage does not have the file.
        """
        return Ags1Reader(cast("Source", self._inner.open(seekable=True)), self._key_metadata, self.location)


class EncryptedOutputFile(OutputFile):
    """A new AGS1 file: takes plain bytes, and has key metadata once its stream is closed."""

    def __init__(self, inner: OutputFile, file_key: FileKey, entropy: Entropy) -> None:
        super().__init__(inner.location)
        self._inner = inner
        self._file_key = file_key
        self._entropy = entropy
        self._writer: Ags1Writer | None = None

    def __len__(self) -> int:
        """Return the bytes on storage (encrypted length).

        Raises:
            ValueError: The stream is not closed yet, or was aborted.
        """
        return self._closed_writer().encrypted_length

    @property
    def key_metadata(self) -> KeyMetadata:
        """What the parent must keep for this file, with its encrypted length.

        Raises:
            ValueError: The stream is not closed yet, or was aborted.
        """
        return self._file_key.closed(self._closed_writer().encrypted_length)

    def check_stored(self) -> None:
        """Check, after closing, that storage has all bytes that were written.

        Raises:
            IntegrityError: it has fewer or more.
            ValueError: The stream is not closed yet, or was aborted.
        """
        check_size(self._inner, self._closed_writer().encrypted_length)

    def exists(self) -> bool:
        """Return whether the storage has a file at this location."""
        return self._inner.exists()

    def create(self, overwrite: bool = False) -> Ags1Writer:  # noqa: FBT001, FBT002 - PyIceberg's signature
        """Return the stream that takes the plain bytes.

        Raises:
            PolicyError: It was created before: a second file needs a second key.
            FileExistsError: The storage has the file and ``overwrite`` is False.
        """
        if self._writer is not None:
            raise PolicyError(f"{self.location}: refused to write twice with one key; make a new EncryptedOutputFile with a fresh FileKey")
        self._writer = Ags1Writer(cast("Sink", self._inner.create(overwrite=overwrite)), self._file_key, self.location, self._entropy)
        return self._writer

    @contextmanager
    def written(self) -> Iterator[Ags1Writer]:
        """Create the file, and give its stream to a ``with`` block: it is closed afterwards, and storage has it; an error aborts it.

        Raises:
            IntegrityError: storage does not have what was written.
            FileExistsError, OSError: storage has the file, or failed. On any error deleting the file is up to the caller.
        """
        stream = self.create(overwrite=False)
        try:
            yield stream
            stream.close()
            self.check_stored()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Abort an open stream, which then has no key metadata. Deleting the file is up to the caller."""
        if self._writer is not None:
            self._writer.abort()

    def to_input_file(self) -> EncryptedInputFile:
        """Return the finished file for reading.

        Raises:
            ValueError: The stream is not closed yet, or was aborted.
        """
        return EncryptedInputFile(self._inner.to_input_file(), self.key_metadata)

    def _closed_writer(self) -> Ags1Writer:
        if self._writer is None:
            raise ValueError(f"{self.location}: nothing was written yet")
        return self._writer
