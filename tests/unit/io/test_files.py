from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from icelock.errors import FormatError, IntegrityError, PolicyError
from icelock.format.key_metadata import FileKey, KeyMetadata
from icelock.io.files import EncryptedInputFile, EncryptedOutputFile
from icelock.keys.entropy import SystemEntropy, mint_file_key
from icelock.secret import SecretBytes
from tests.unit.io.fakes import FILE_KEY, KEY, MIB, NAME, PREFIX, MemoryFile, Nonces, key_metadata, sound

PLAIN, STREAM = sound(2 * MIB + 5)


def output(files, *, file_key=FILE_KEY, name=NAME):
    return EncryptedOutputFile(MemoryFile(files, name), file_key, Nonces())


def written(files, plain, *, file_key=FILE_KEY, name=NAME):
    out = output(files, file_key=file_key, name=name)
    with out.create() as stream:
        stream.write(plain)
    return out


def test_a_file_on_disk_goes_round_and_its_length_is_that_on_disk(tmp_path):
    """C-01: key metadata and manifest_length (field 501) have the size that the file has on storage."""
    location = f"{tmp_path}/m0.avro"
    out = EncryptedOutputFile(PyArrowFileIO().new_output(location), mint_file_key(SystemEntropy(), 32), SystemEntropy())
    with out.create() as stream:
        for start in range(0, len(PLAIN), 100_000):
            stream.write(PLAIN[start : start + 100_000])
    size = Path(location).stat().st_size
    assert size == 2097249
    assert len(out) == out.key_metadata.encrypted_length == size
    assert KeyMetadata.decode(out.key_metadata.encode()).encrypted_length == size
    assert PLAIN[:100] not in Path(location).read_bytes()
    back = EncryptedInputFile(PyArrowFileIO().new_input(location), KeyMetadata.decode(out.key_metadata.encode()))
    assert len(back) == len(PLAIN)
    with back.open() as stream:
        assert stream.read() == PLAIN


def test_pyicebergs_own_avro_files_go_through(tmp_path):
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType(), required=True))
    out = EncryptedOutputFile(PyArrowFileIO().new_output(f"{tmp_path}/x.avro"), FILE_KEY, SystemEntropy())
    with AvroOutputFile[Record](out, schema, "row") as avro:
        avro.write_block([Record(1, "one"), Record(2, "two")])
    with AvroFile[Record](out.to_input_file()) as avro:
        assert [(record[0], record[1]) for record in avro] == [(1, "one"), (2, "two")]


def test_files_and_streams_are_pyicebergs():
    files = {}
    out = output(files)
    assert isinstance(out, OutputFile)
    assert not out.exists()
    with out.create() as stream:
        assert isinstance(stream, OutputStream)
    assert out.exists()
    back = out.to_input_file()
    assert isinstance(back, InputFile)
    assert back.exists()
    assert out.location == back.location == NAME
    with back.open(seekable=False) as stream:
        assert isinstance(stream, InputStream)
        assert stream.seekable()


def test_the_length_of_an_input_is_the_plain_one_and_the_storage_is_not_asked():
    """C-03: the fake's own length raises."""
    assert len(EncryptedInputFile(MemoryFile({}), key_metadata(2097249))) == 2097157


def test_key_metadata_has_the_key_of_the_file_and_its_length():
    out = written({}, PLAIN)
    assert out.key_metadata == key_metadata(2097249)


def test_before_close_there_is_no_key_metadata_and_no_length():
    """C-01."""
    out = output({})
    for _ in range(2):
        with pytest.raises(ValueError, match=f"^{NAME}: "):
            _ = out.key_metadata
        with pytest.raises(ValueError, match=f"^{NAME}: "):
            len(out)
        with pytest.raises(ValueError, match=f"^{NAME}: "):
            out.to_input_file()
        if out._writer is None:
            out.create().write(b"abc")


def test_one_key_writes_one_file():
    out = written({}, b"abc")
    with pytest.raises(PolicyError, match=f"^{NAME}: refused to write twice with one key"):
        out.create(overwrite=True)


def test_an_existing_file_is_kept_unless_overwritten():
    files = {NAME: b"old"}
    out = output(files)
    with pytest.raises(FileExistsError):
        out.create()
    assert files[NAME] == b"old"
    with out.create(overwrite=True) as stream:
        stream.write(b"abc")
    with out.to_input_file().open() as stream:
        assert stream.read() == b"abc"


def test_an_aborted_file_has_no_key_metadata():
    files = {}
    out = output(files)
    out.abort()
    stream = out.create()
    stream.write(bytes(MIB + 5))
    out.abort()
    assert stream.closed
    assert len(files[NAME]) == 8 + 1048604
    for call in (lambda: out.key_metadata, lambda: len(out), out.to_input_file):
        with pytest.raises(ValueError, match="aborted"):
            call()


def test_a_file_that_lost_whole_blocks_is_refused_and_named():
    """C-03: header and the first two blocks are left, and the storage reports just that size."""
    files = {NAME: STREAM[: 8 + 2 * 1048604]}
    with pytest.raises(IntegrityError, match=f"^{NAME}: 33 bytes are missing: key metadata says 2097249 bytes, the storage has 2097216"):
        EncryptedInputFile(MemoryFile(files), key_metadata(len(STREAM))).open()


def test_left_over_bytes_are_refused_and_the_file_named():
    with pytest.raises(IntegrityError, match=f"^{NAME}: 3 bytes are left over"):
        EncryptedInputFile(MemoryFile({NAME: STREAM + b"abc"}), key_metadata(len(STREAM))).open()


def test_key_metadata_without_length_is_refused_as_java_does():
    """C-01, C-03, J-07: 37 bytes of key metadata instead of 39."""
    foreign = KeyMetadata.decode(b"\x01\x20" + KEY + b"\x02\x20" + PREFIX + b"\x00")
    with pytest.raises(FormatError, match=f"^{NAME}: its key metadata has no file length"):
        EncryptedInputFile(MemoryFile({NAME: STREAM}), foreign)


@pytest.mark.parametrize("length", [0, 35, 2 * MIB + 5 - 2 * MIB, 8 + 1048604 + 28])
def test_key_metadata_with_an_impossible_length_is_refused(length):
    with pytest.raises(FormatError, match=f"^{NAME}: its key metadata has a wrong file length"):
        EncryptedInputFile(MemoryFile({NAME: STREAM}), key_metadata(length))


def test_two_files_with_each_others_key_metadata_are_refused():
    """C-62: same length, so that only the keys differ."""
    files = {}
    other_key = FileKey(dek=SecretBytes(bytes(16)), aad_prefix=PREFIX)
    other_prefix = FileKey(dek=SecretBytes(KEY), aad_prefix=bytes(16))
    first = written(files, b"first", name="mem://a")
    for other in (
        written(files, b"other", name="mem://b", file_key=other_key),
        written(files, b"other", name="mem://c", file_key=other_prefix),
    ):
        for file, metadata in ((first, other.key_metadata), (other, first.key_metadata)):
            inner = MemoryFile(files, file.location)
            with pytest.raises(IntegrityError, match=f"^{file.location}: block 0 of 1 does not authenticate"):
                EncryptedInputFile(inner, metadata).open()
            assert inner.opened[0].closed


@pytest.mark.parametrize("content", [b"Obj\x01" + bytes(100), b"PAR1" + bytes(100), b"PARE" + bytes(100), b"\x00garbage"])
def test_another_kind_of_file_in_its_place_is_named_by_its_first_bytes(content):
    """C-67."""
    with pytest.raises(IntegrityError) as caught:
        EncryptedInputFile(MemoryFile({NAME: content}), key_metadata(1000)).open()
    assert f"{NAME}: not an AGS1 stream: it begins with {content[:4]!r}" in str(caught.value)


def test_a_missing_file_is_the_storages_error():
    missing = EncryptedInputFile(MemoryFile({}), key_metadata(36))
    assert not missing.exists()
    with pytest.raises(FileNotFoundError):
        missing.open()
