"""Opening encrypted Parquet: right keys, wrong keys, damage, and the storage's own errors."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from pyiceberg.io import InputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from icelock.errors import FormatError, IntegrityError, KeyUnavailableError, PolicyError
from icelock.format.key_metadata import FileKey, KeyMetadata
from icelock.io.parquet import ParquetInput, check_pyarrow, decryption_properties, encryption_properties
from icelock.secret import SecretBytes

DEK = b"0123456789abcdef"
AAD = b"AAD-PREFIX-16-B."
TABLE = pa.table({"a": list(range(1000)), "s": [f"value {i}" for i in range(1000)]})


def key(dek: bytes = DEK, aad: bytes | None = AAD, length: int | None = None) -> KeyMetadata:
    return KeyMetadata(dek=SecretBytes(dek), aad_prefix=aad, encrypted_length=length)


def write(path: Path, table: pa.Table = TABLE, *, dek: bytes = DEK, aad: bytes = AAD, **options: Any) -> Path:
    keys = pe.create_encryption_properties(footer_key=dek, aad_prefix=aad, **{"store_aad_prefix": False, **options})
    pq.write_table(table, path, encryption_properties=keys, row_group_size=250)
    return path


def read(path: Path, key_metadata: KeyMetadata | None) -> pa.Table:
    with ParquetInput(PyArrowFileIO().new_input(str(path)), key_metadata) as source:
        columns = source.leaf_paths(range(source.metadata.num_columns))
        groups = range(source.metadata.num_row_groups)
        return pa.Table.from_batches([batch for group in groups for batch in source.batches(group, columns, 100)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "data.parquet")


class Ranges(io.FileIO):
    """A file that remembers where it was read; what is read on from there is the same place."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.places: list[int] = []
        self._end = -1

    def readinto(self, buffer: Any, /) -> int:
        if self.tell() != self._end:
            self.places.append(self.tell())
        got = super().readinto(buffer)
        self._end = self.tell()
        return got


@pytest.mark.parametrize(
    ("location", "rows", "places"), [("s3://lake/x.parquet", 80_000, 1), ("s3://lake/x.parquet", 200_000, 2), ("file:///x", 80_000, 2)]
)
def test_a_file_of_less_than_a_mib_is_read_at_once_from_object_storage(tmp_path: Path, location: str, rows: int, places: int):
    """Each place is a request of it. Of other files, the end is read first; then the first bytes and the columns, side by side."""
    table = pa.table({"a": range(rows)})
    path = tmp_path / "data.parquet"
    pq.write_table(table, path, encryption_properties=encryption_properties(FileKey(dek=SecretBytes(DEK), aad_prefix=AAD)))
    assert (path.stat().st_size < 1 << 20) is (rows == 80_000)
    stream = Ranges(path)

    class Stored(InputFile):
        def __len__(self) -> int:
            return path.stat().st_size

        def exists(self) -> bool:
            return True

        def open(self, seekable: bool = True) -> Any:  # noqa: ARG002, FBT001, FBT002 - PyIceberg's signature
            return stream

    with ParquetInput(Stored(location), key(length=path.stat().st_size)) as source:
        found = pa.Table.from_batches(source.batches(0, source.leaf_paths([0]), rows))
    assert found.equals(table)
    assert len(stream.places) == places


@pytest.mark.parametrize("length", [16, 24, 32])
def test_a_file_opens_with_its_key_metadata(tmp_path: Path, length: int):
    dek = bytes(range(length))
    path = write(tmp_path / "data.parquet", dek=dek)
    assert read(path, key(dek, length=path.stat().st_size)).equals(TABLE)
    assert read(path, key(dek)).equals(TABLE)


@pytest.mark.parametrize("length", [16, 24, 32])
def test_a_file_written_with_our_properties_has_an_encrypted_footer_and_no_aad_prefix_in_it(tmp_path: Path, length: int):
    file_key = FileKey(dek=SecretBytes(bytes(range(length))), aad_prefix=AAD)
    path = tmp_path / "data.parquet"
    pq.write_table(TABLE, path, encryption_properties=encryption_properties(file_key))
    stored = path.read_bytes()
    assert (stored[:4], stored[-4:], AAD in stored, b"value 7" in stored) == (b"PARE", b"PARE", False, False)
    direct = pe.create_decryption_properties(footer_key=bytes(range(length)), aad_prefix=AAD)
    assert pq.read_table(path, decryption_properties=direct).equals(TABLE)


def test_properties_are_new_each_time():
    file_key = FileKey(dek=SecretBytes(DEK), aad_prefix=AAD)
    assert decryption_properties(key()) is not decryption_properties(key())
    assert encryption_properties(file_key) is not encryption_properties(file_key)


@pytest.mark.parametrize(
    "wrong",
    [key(b"fedcba9876543210"), key(aad=b"another-prefix-1"), key(b"fedcba9876543210" * 2), key(aad=b"")],
    ids=["dek", "prefix", "length of dek", "empty prefix"],
)
def test_a_wrong_key_or_prefix_is_an_integrity_error_that_names_the_file(path: Path, wrong: KeyMetadata):
    with pytest.raises(IntegrityError, match=r"data\.parquet .*(wrong key or AAD prefix|AAD prefix)") as caught:
        read(path, wrong)
    assert caught.value.__cause__ is not None
    assert DEK.hex() not in str(caught.value)


def test_a_missing_prefix_has_a_message_of_its_own(path: Path):
    with pytest.raises(IntegrityError, match=r"data\.parquet needs an AAD prefix, but its key metadata has none"):
        read(path, key(aad=None))


def test_another_files_key_metadata_does_not_open_a_swapped_file(tmp_path: Path):
    """Case C-62 for data files: right DEK of another file, and two files of one size that changed places."""
    first = write(tmp_path / "first.parquet")
    second = write(tmp_path / "second.parquet", aad=b"PREFIX-OF-SECOND")
    assert first.stat().st_size == second.stat().st_size
    first.write_bytes(second.read_bytes())
    with pytest.raises(IntegrityError, match=r"first\.parquet"):
        read(first, key(length=first.stat().st_size))


@pytest.mark.parametrize("cut", [1, 8, 500])
@pytest.mark.parametrize("known", [True, False])
def test_a_cut_file_is_an_integrity_error(path: Path, cut: int, known):
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-cut])
    expected = (
        rf"data\.parquet has {whole - cut} bytes on storage, its key metadata says {whole}" if known else r"data\.parquet failed authentic"
    )
    with pytest.raises(IntegrityError, match=expected):
        read(path, key(length=whole if known else None))


@pytest.mark.parametrize("content", [b"", b"PAR", b"PARE"])
def test_a_stump_is_an_error_that_names_the_file(path: Path, content: bytes):
    path.write_bytes(content)
    with pytest.raises((IntegrityError, FormatError), match=r"data\.parquet"):
        read(path, key())


def test_bytes_added_to_a_file_are_an_integrity_error(path: Path):
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\x00")
    with pytest.raises(IntegrityError, match=rf"has {whole + 1} bytes on storage, its key metadata says {whole}"):
        read(path, key(length=whole))


def test_every_flipped_byte_of_pages_and_footer_is_refused(tmp_path: Path):
    table = TABLE.slice(0, 40)
    path = write(tmp_path / "data.parquet", table)
    whole = path.read_bytes()
    unseen = []
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x40]) + whole[position + 1 :])
        try:
            assert read(path, key(length=len(whole))).equals(table)
            unseen.append(position)
        except IntegrityError as e:
            assert "data.parquet" in str(e)  # noqa: PT017 - see the list
    assert unseen == []


def test_a_plain_file_in_place_of_an_encrypted_one_is_an_integrity_error(path: Path):
    pq.write_table(TABLE, path)
    with pytest.raises(IntegrityError, match=r"data\.parquet is a plain Parquet file \(PAR1\), but its key metadata says"):
        read(path, key())


def test_another_container_is_a_format_error_with_its_first_bytes(path: Path):
    """Case C-67."""
    path.write_bytes(b"AGS1" + bytes(2000))
    with pytest.raises(IntegrityError, match=r"data\.parquet is not PARE \(encrypted Parquet\): expected first bytes PARE, got b'AGS1'"):
        read(path, key())


def test_an_encrypted_file_without_key_metadata_says_that_a_kms_is_needed(path: Path):
    """Case C-60."""
    with pytest.raises(KeyUnavailableError, match=r"data\.parquet is an encrypted Parquet file \(PARE\).*KMS"):
        read(path, None)


def test_a_plain_file_is_read_without_key_metadata(path: Path):
    pq.write_table(TABLE, path)
    assert read(path, None).equals(TABLE)


def test_a_damaged_plain_file_is_a_format_error(path: Path):
    pq.write_table(TABLE, path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FormatError, match=r"data\.parquet is a damaged plain Parquet file"):
        read(path, None)
    path.write_bytes(b"something else entirely")
    with pytest.raises(FormatError, match=r"data\.parquet is not a Parquet file: expected first bytes PAR1, got b'some'"):
        read(path, None)


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("plain_footer", [True, False])
def test_what_java_reads_is_read(tmp_path: Path, store, plain_footer):
    """format.md, "Parquet from pyarrow": stored prefix, plaintext footer. Not AES_GCM_CTR_V1, which Java reads too (ADR 0013)."""
    path = write(tmp_path / "data.parquet", store_aad_prefix=store, plaintext_footer=plain_footer)
    assert read(path, key()).equals(TABLE)


def test_a_changed_plaintext_footer_is_an_integrity_error(tmp_path: Path):
    path = write(tmp_path / "data.parquet", plaintext_footer=True)
    stored = bytearray(path.read_bytes())
    stored[stored.rindex(b"parquet-cpp")] ^= 1
    path.write_bytes(stored)
    with pytest.raises(IntegrityError, match=r"data\.parquet failed authentication"):
        read(path, key())


@pytest.mark.parametrize("store", [True, False])
def test_a_signed_footer_with_the_other_algorithm_is_refused(tmp_path: Path, store):
    path = write(tmp_path / "data.parquet", plaintext_footer=True, store_aad_prefix=store, encryption_algorithm="AES_GCM_CTR_V1")
    with pytest.raises(IntegrityError, match=r"data\.parquet .*names AES_GCM_CTR_V1"):
        read(path, key())


def test_another_stored_prefix_is_an_integrity_error(tmp_path: Path):
    path = write(tmp_path / "data.parquet", store_aad_prefix=True)
    with pytest.raises(IntegrityError, match=r"data\.parquet has a different AAD prefix"):
        read(path, key(aad=b"another-prefix-1"))


class _Failing(InputFile):
    """A file whose storage fails after ``good`` reads."""

    def __init__(self, path: Path, error: Exception, good: int) -> None:
        super().__init__(str(path))
        self._data, self._error, self._good = path.read_bytes(), error, good
        self.stream: io.BytesIO | None = None

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> Any:  # noqa: FBT001, FBT002 - PyIceberg's signature
        del seekable
        outer = self

        class Stream(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                outer._good -= 1
                if outer._good < 0:
                    raise outer._error
                return super().read(size)

            def readinto(self, buffer: Any, /) -> int:
                data = self.read(len(buffer))
                buffer[: len(data)] = data
                return len(data)

        self.stream = Stream(self._data)
        return self.stream


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "no"),
        OSError(errno.EIO, "disk"),
        TimeoutError("slow"),
        OSError("When reading: AWS Error NETWORK_CONNECTION during GetObject"),
        OSError("Failed decryption finalization"),
    ],
)
@pytest.mark.parametrize("good", [0, 1, 2])
def test_an_error_of_the_storage_is_not_called_damage(tmp_path: Path, error: Exception, good: int):
    """The reads are those of the end, of the first bytes, and of a row group."""
    long = pa.table({"a": list(range(100_000))})
    source = _Failing(write(tmp_path / "data.parquet", long), error, good)
    with pytest.raises(type(error)) as caught, ParquetInput(source, key()) as opened:
        list(opened.batches(0, ["a"], 100))
    assert str(error) in str(caught.value)
    assert source.stream is not None
    assert source.stream.closed


def test_a_file_that_is_not_there_is_the_storages_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none.parquet", key())


def test_a_file_is_closed_when_it_cannot_be_opened_and_after_use(path: Path):
    source = _Failing(path, OSError("never"), 1 << 30)
    with ParquetInput(source, key()):
        pass
    assert source.stream is not None
    assert source.stream.closed
    source = _Failing(path, OSError("never"), 1 << 30)
    with pytest.raises(IntegrityError):
        ParquetInput(source, key(b"x" * 16))
    assert source.stream is not None
    assert source.stream.closed


@pytest.mark.parametrize("version", ["24.0.0", "17.0.0", "9.0.1"])
def test_an_older_pyarrow_is_refused_with_the_version_that_is_needed(version: str):
    """Case C-28."""
    with pytest.raises(PolicyError, match=rf"pyarrow {version} .*pip install 'pyarrow>=25'"):
        check_pyarrow(version)


@pytest.mark.parametrize("version", ["25.0.0", "26.0.1", "100.0.0.dev1"])
def test_a_newer_pyarrow_is_taken(version: str):
    check_pyarrow(version)
