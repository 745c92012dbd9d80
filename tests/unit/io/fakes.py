"""In-memory storage and streams with one quirk each; sound AGS1 bytes come from ``tests.vectors.ags1.reference``."""

from __future__ import annotations

import io

from pyiceberg.io import InputFile, OutputFile

from icelock.format.key_metadata import FileKey, KeyMetadata
from icelock.secret import SecretBytes
from tests.vectors.ags1 import reference

KEY = bytes(range(16))
PREFIX = bytes(range(0xA0, 0xB0))
FILE_KEY = FileKey(dek=SecretBytes(KEY), aad_prefix=PREFIX)
NAME = "mem://lake/m0.avro"
MIB = 1048576


def key_metadata(length, *, key=KEY, aad_prefix=PREFIX):
    return KeyMetadata(dek=SecretBytes(key), aad_prefix=aad_prefix, encrypted_length=length)


def sound(length):
    """Plain bytes and their AGS1 stream."""
    plain = reference.plaintext(length)
    return plain, reference.stream(KEY, PREFIX, plain)


class Nonces:
    """Entropy that gives the nonces of the reference encoder, in order."""

    def __init__(self):
        self.drawn = 0

    def random_bytes(self, n):
        assert n == 12
        self.drawn += 1
        return reference.nonce(self.drawn - 1)


class Sink:
    """Keeps what it was given, by reference as Arrow's streams do, and whether it was closed."""

    def __init__(self):
        self.chunks = []
        self.closed = False

    def write(self, data):
        self.chunks.append(memoryview(data))
        return len(data)

    def close(self):
        self.closed = True

    @property
    def data(self):
        return b"".join(self.chunks)


class ShortSink(Sink):
    """Takes 1000 bytes a call, as a raw stream may."""

    def write(self, data):
        return super().write(data[:1000])


class FailingSink(Sink):
    """Raises ``error`` on call number ``call`` of ``write``, counted from 0."""

    def __init__(self, call, error):
        super().__init__()
        self.countdown = call
        self.error = error

    def write(self, data):
        if self.countdown == 0:
            raise self.error
        self.countdown -= 1
        return super().write(data)


class Source(io.BytesIO):
    """Counts reads of the storage."""

    def __init__(self, data):
        super().__init__(data)
        self.reads = 0

    def readinto(self, buffer):
        self.reads += 1
        return super().readinto(buffer)


class ShortSource(Source):
    """Gives 100,000 bytes a call, as a raw stream may."""

    def readinto(self, buffer):
        return super().readinto(memoryview(buffer)[:100_000])


class PlainSource:
    """Has PyIceberg's InputStream methods only: no ``readinto``."""

    def __init__(self, data):
        self._inner = io.BytesIO(data)

    def read(self, size=0):
        return self._inner.read(size)

    def seek(self, offset, whence=0):
        return self._inner.seek(offset, whence)

    def tell(self):
        return self._inner.tell()

    def close(self):
        self._inner.close()


class LyingSource(Source):
    """Claims ``size`` bytes."""

    def __init__(self, data, size):
        super().__init__(data)
        self.size = size

    def seek(self, offset, whence=0):
        return self.size if whence == io.SEEK_END else super().seek(offset, whence)


class FailingSource(Source):
    """The storage fails once, at read number ``call``, counted from 0."""

    def __init__(self, data, call):
        super().__init__(data)
        self.call = call

    def readinto(self, buffer):
        if self.reads == self.call:
            self.reads += 1
            msg = "storage is away"
            raise OSError(msg)
        return super().readinto(buffer)


class MemoryFile(InputFile, OutputFile):
    """One file of a dict; nobody may ask for its size."""

    def __init__(self, files, location=NAME):
        super().__init__(location)
        self.files = files
        self.opened = []

    def __len__(self):
        msg = "the size on storage is not what counts"
        raise AssertionError(msg)

    def exists(self):
        return self.location in self.files

    def open(self, seekable=True):  # noqa: FBT002
        assert seekable
        if self.location not in self.files:
            raise FileNotFoundError(self.location)
        self.opened.append(Source(self.files[self.location]))
        return self.opened[-1]

    def create(self, overwrite=False):  # noqa: FBT002
        if self.exists() and not overwrite:
            raise FileExistsError(self.location)
        files, location = self.files, self.location

        class Stored(Sink):
            def close(self):
                files[location] = self.data
                super().close()

        return Stored()

    def to_input_file(self):
        return self


class WrittenFile(MemoryFile):
    """One whose writer looks for its size; ``lost`` bytes are missing."""

    lost = 0

    def __len__(self):
        return len(self.files[self.location]) - self.lost
