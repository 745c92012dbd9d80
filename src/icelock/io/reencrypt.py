"""The same plain bytes under a new key: an AGS1 file is read, authenticated block by block, and written again.

Not here: Parquet's own encryption (``io.parquet``), what the bytes are.
"""

from __future__ import annotations

from typing import Final

from icelock.errors import IntegrityError
from icelock.format.key_metadata import KeyMetadata
from icelock.io.files import EncryptedInputFile, EncryptedOutputFile

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


def check_plain(source: EncryptedInputFile, copied: int) -> None:
    """Check that all plain bytes of a file were copied."""
    if copied != len(source):
        raise IntegrityError(f"{source.location} has {copied} plain bytes, not {len(source)} as its key metadata says")
