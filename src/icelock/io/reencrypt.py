"""The same plain bytes under a new key: an AGS1 file is read, authenticated block by block, and written again; Parquet, module by module.

Not here: Parquet's modules (``io.parquet_reencrypt``), what the bytes are.
"""

from __future__ import annotations

from typing import Final

from pyiceberg.io import FileIO

from icelock.errors import IntegrityError
from icelock.format.key_metadata import FileKey, KeyMetadata
from icelock.io.files import EncryptedInputFile, EncryptedOutputFile
from icelock.io.parquet_reencrypt import reencrypt_parquet
from icelock.keys.entropy import Entropy

_PARQUET: Final = "PARQUET"
_PIECE: Final = 1 << 20


def reencrypt(source: EncryptedInputFile, output: EncryptedOutputFile) -> KeyMetadata:
    """Copy a file under the output's key, in the memory of a piece; return its key metadata.

    Raises:
        IntegrityError, FormatError: the source's bytes are not those that were written, or storage does not have what was.
        FileExistsError: the storage has a file at the output's place.
        OSError: the storage failed. On any error the stream is aborted, and deleting the file is up to the caller.
    """
    with source.open() as stream, output.written() as sink:
        while piece := stream.read(_PIECE):
            sink.write(piece)
        check_plain(source, sink.tell())
    return output.key_metadata


def reencrypt_file(  # noqa: PLR0913 - a file and its copy
    io: FileIO, path: str, key: KeyMetadata, *, file_format: str, location: str, file_key: FileKey, entropy: Entropy
) -> KeyMetadata:
    """Copy a data or delete file under a new key; return the copy's key metadata.

    Args:
        io: the storage.
        path: of the file.
        key: that opens it.
        file_format: as its manifest entry says: PARQUET, or another one whose files are AGS1.
        location: of the copy.
        file_key: the copy's.
        entropy: where nonces come from.

    Raises:
        IntegrityError, FormatError, FileExistsError, OSError: as ``reencrypt`` and ``reencrypt_parquet``.
    """
    source, output = io.new_input(path), io.new_output(location)
    if file_format == _PARQUET:
        return reencrypt_parquet(source, key, output, file_key, entropy)
    return reencrypt(EncryptedInputFile(source, key), EncryptedOutputFile(output, file_key, entropy))


def check_plain(source: EncryptedInputFile, copied: int) -> None:
    """Check that all plain bytes of a file were copied."""
    if copied != len(source):
        raise IntegrityError(f"{source.location} has {copied} plain bytes, not {len(source)} as its key metadata says")
