"""Encrypted scans as a whole: many row groups, repeated and parallel use, what is decrypted, what is refused."""

from __future__ import annotations

import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, StructType

from icelock.arrow.read.task import count_task, read_task
from icelock.errors import FormatError, IntegrityError, KeyUnavailableError, PolicyError
from icelock.secret import SecretBytes
from tests.unit.arrow.support import AAD, DEK, OTHER_DEK, CountingIO, context, metadata, opt, read, rows_table, task, with_ids, write

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    opt(2, "d", DoubleType()),
    opt(3, "s", StringType()),
)


def _table(rows: int) -> pa.Table:
    ids = pa.arange(0, rows)
    return pa.Table.from_arrays(
        [ids, ids.cast(pa.float64()), pa.array([f"s{i % 1000}" for i in range(rows)], pa.large_string())], schema=with_ids(SCHEMA)
    )


def test_a_file_of_twelve_row_groups_reads_whole_and_in_order(tmp_path: Path):
    """Case C-25: the row group's ordinal is the file's."""
    path = write(tmp_path / "f.parquet", _table(12_000), row_group_size=1000)
    assert pq.read_metadata(path, decryption_properties=_direct()).num_row_groups == 12
    one = task(path, key=metadata(path))
    assert read(context(SCHEMA), one).column("id").to_pylist() == list(range(12_000))
    assert read(context(SCHEMA, GreaterThanOrEqual("id", 11_500)), one).column("id").to_pylist() == list(range(11_500, 12_000))


def _direct() -> pe.FileDecryptionProperties:
    return pe.create_decryption_properties(footer_key=DEK, aad_prefix=AAD)


@pytest.mark.slow
def test_forty_row_groups_read_ten_times_and_from_eight_threads(tmp_path: Path):
    """Case C-18: 1.3 M rows, threads on; false tag failures showed beyond 32,768 rows."""
    rows = 1_300_000
    path = write(tmp_path / "f.parquet", _table(rows), row_group_size=rows // 40, compression="zstd")
    assert pq.read_metadata(path, decryption_properties=_direct()).num_row_groups == 40
    scan, one = context(SCHEMA), task(path, key=metadata(path))
    total = rows * (rows - 1) // 2

    def ids() -> int:
        return sum(pa.compute.sum(batch.column("id")).as_py() for batch in read_task(scan, one))

    assert [ids() for _ in range(10)] == [total] * 10
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: ids(), range(16))) == [total] * 16


def test_count_filter_and_read_are_repeated_on_one_object(tmp_path: Path):
    """Case C-19."""
    path = write(tmp_path / "f.parquet", _table(70_000), row_group_size=10_000)
    whole, some = context(SCHEMA), context(SCHEMA, EqualTo("s", "s7"))
    one = task(path, key=metadata(path), record_count=70_000)
    for _ in range(3):
        assert count_task(whole, one) == 70_000
        assert read(whole, one).num_rows == 70_000
        assert read(some, one).num_rows == 70
        assert count_task(some, one) == 70


def test_two_scans_of_one_file_interleave(tmp_path: Path):
    path = write(tmp_path / "f.parquet", _table(4000), row_group_size=1000)
    scan, one = context(SCHEMA), task(path, key=metadata(path))
    pairs = list(zip(read_task(scan, one), read_task(scan, one), strict=True))
    assert len(pairs) == 4
    assert all(left.equals(right) for left, right in pairs)


def test_only_chosen_columns_are_read(tmp_path: Path):
    """Case C-54: of 50 columns one, of a struct one member."""
    wide = Schema(
        *(NestedField(i, f"c{i}", LongType(), required=False) for i in range(1, 50)),
        NestedField(50, "st", StructType(*(NestedField(i, f"m{i}", LongType(), required=False) for i in range(51, 71))), required=False),
    )
    rows = [{**{f"c{i}": i * n for i in range(1, 50)}, "st": {f"m{i}": i * n for i in range(51, 71)}} for n in range(4000)]
    path = write(tmp_path / "f.parquet", rows_table(wide, rows), compression="none", use_dictionary=False)
    one = task(path, key=metadata(path))
    for schema in (
        Schema(wide.find_field("c7")),
        Schema(NestedField(50, "st", StructType(opt(60, "m60", LongType())), required=False)),
    ):
        io = CountingIO()
        assert read(context(schema, table_schema=wide, io=io), one).num_rows == 4000
        assert 4000 * 8 < io.seen.bytes < path.stat().st_size / 10


def test_nothing_is_read_before_the_first_batch_and_the_file_is_closed_early(tmp_path: Path):
    path = write(tmp_path / "f.parquet", _table(20_000), row_group_size=1000, compression="none")
    io = CountingIO()
    batches = read_task(context(SCHEMA, io=io), task(path, key=metadata(path)))
    assert io.seen.opened == []
    next(batches)
    assert io.seen.bytes < path.stat().st_size / 5
    batches.close()  # type: ignore[attr-defined]
    assert (io.seen.opened, io.seen.open_now) == ([str(path)], 0)


def test_memory_stays_near_one_row_group(tmp_path: Path):
    table = _table(400_000)
    path = write(tmp_path / "f.parquet", table, row_group_size=10_000)
    scan, one = context(SCHEMA), task(path, key=metadata(path))
    before = pa.total_allocated_bytes()
    most = max(pa.total_allocated_bytes() - before for _ in read_task(scan, one))
    assert most < table.nbytes / 10


def test_wide_rows_come_in_smaller_batches(tmp_path: Path):
    """64 MiB a batch: rows of 256 KiB come 256 at a time."""
    rows = [{"id": i, "s": f"{i:0262144}"} for i in range(300)]
    path = write(tmp_path / "f.parquet", rows_table(SCHEMA, rows), use_dictionary=False)
    sizes = [batch.num_rows for batch in read_task(context(SCHEMA), task(path, key=metadata(path)))]
    assert sum(sizes) == 300
    assert max(sizes) <= 256


@pytest.fixture
def one_file(tmp_path: Path) -> Path:
    return write(tmp_path / "data.parquet", _table(3000), row_group_size=1000)


@pytest.mark.parametrize(
    "changed",
    [{"dek": OTHER_DEK}, {"aad": b"another-prefix-1"}, {"aad": None}, {"length": 4711}],
    ids=["DEK", "AAD prefix", "no AAD prefix", "length"],
)
def test_wrong_key_metadata_is_an_integrity_error_that_names_the_file(one_file: Path, changed: dict[str, object]):
    one = task(one_file, key=metadata(one_file, **changed))  # type: ignore[arg-type]
    with pytest.raises(IntegrityError, match=r"data\.parquet"):
        read(context(SCHEMA), one)


def test_a_byte_flipped_in_the_last_row_group_stops_the_scan_there(one_file: Path):
    column = pq.read_metadata(one_file, decryption_properties=_direct()).row_group(2).column(0)
    stored = bytearray(one_file.read_bytes())
    stored[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    one_file.write_bytes(stored)
    batches = read_task(context(SCHEMA), task(one_file, key=metadata(one_file)))
    assert [next(batches).num_rows, next(batches).num_rows] == [1000, 1000]
    with pytest.raises(IntegrityError, match=r"data\.parquet failed authentication .*restore the file"):
        next(batches)


def test_swapped_files_are_refused(tmp_path: Path):
    first = write(tmp_path / "first.parquet", _table(1000))
    second = write(tmp_path / "second.parquet", _table(1000), aad=b"PREFIX-OF-SECOND")
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    for path, aad in ((first, AAD), (second, b"PREFIX-OF-SECOND")):
        with pytest.raises(IntegrityError, match=path.name):
            read(context(SCHEMA), task(path, key=metadata(path, aad=aad)))


class _Kms(pe.KmsClient):
    """Hands out nothing; remembers the raw keys by master key."""

    def __init__(self, seen: dict[str, bytes]) -> None:
        super().__init__()
        self._seen = seen

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        self._seen[master_key_identifier] = bytes(key_bytes)
        return b"wrapped"

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        raise AssertionError(wrapped_key, master_key_identifier)


def _write_by_kms(path: Path, **configuration: object) -> bytes:
    """Write a file of pyarrow's KMS-style writer and return its footer key."""
    seen: dict[str, bytes] = {}
    factory = pe.CryptoFactory(lambda _: _Kms(seen))
    settings = pe.EncryptionConfiguration(footer_key="footer", double_wrapping=False, data_key_length_bits=128, **configuration)
    keys = factory.file_encryption_properties(pe.KmsConnectionConfig(), settings)
    pq.write_table(_table(100), path, encryption_properties=keys, store_schema=False)
    return seen["footer"]


def test_foreign_key_metadata_inside_the_file_is_not_looked_at(tmp_path: Path):
    """Case C-61: a file of the KMS-style writer, whose footer key is a DEK that we were given."""
    path = tmp_path / "f.parquet"
    dek = _write_by_kms(path, uniform_encryption=True)
    assert b"PKMT1" in path.read_bytes()
    assert read(context(SCHEMA), task(path, key=metadata(path, dek=dek, aad=None))).num_rows == 100


def test_a_column_with_a_key_of_its_own_is_named_as_such_and_the_others_are_read(tmp_path: Path):
    """Case C-68."""
    path = tmp_path / "f.parquet"
    one = task(path, key=metadata(dek=_write_by_kms(path, column_keys={"column": ["s"]}), aad=None))
    assert read(context(SCHEMA.select("id")), one).num_rows == 100
    with pytest.raises(KeyUnavailableError, match=r"f\.parquet has columns under keys of their own"):
        read(context(SCHEMA), one)


def test_a_plain_file_is_read_only_when_the_policy_says_so(tmp_path: Path):
    path = write(tmp_path / "plain.parquet", _table(10), dek=None)
    with pytest.raises(PolicyError, match=r"plain\.parquet has no key metadata, but its table is encrypted.*allow-unkeyed"):
        read_task(context(SCHEMA, io=CountingIO()), task(path, key=None))
    assert read(context(SCHEMA, allow_plaintext=True), task(path, key=None)).num_rows == 10


def test_the_bytes_never_decide_whether_a_file_is_encrypted(tmp_path: Path):
    plain = write(tmp_path / "plain.parquet", _table(10), dek=None)
    with pytest.raises(IntegrityError, match=r"plain\.parquet is a plain Parquet file"):
        read(context(SCHEMA, allow_plaintext=True), task(plain, key=metadata(plain)))
    encrypted = write(tmp_path / "encrypted.parquet", _table(10))
    with pytest.raises(KeyUnavailableError, match=r"encrypted\.parquet is an encrypted Parquet file"):
        read(context(SCHEMA, allow_plaintext=True), task(encrypted, key=None))


def test_damaged_key_metadata_is_a_format_error_that_names_the_file(one_file: Path):
    one = dataclasses.replace(task(one_file, key=metadata(one_file)), key_metadata=SecretBytes(b"\x02junk"))
    with pytest.raises(FormatError, match=r"data\.parquet: the manifest entry's key metadata is damaged"):
        read_task(context(SCHEMA), one)


@pytest.mark.parametrize("file_format", ["ORC", "orc", "PUFFIN"])
def test_other_data_formats_are_refused_by_name(one_file: Path, file_format: str):
    with pytest.raises(PolicyError, match=rf"data\.parquet is in {file_format}, and only PARQUET, AVRO can be read here"):
        read_task(context(SCHEMA), task(one_file, key=metadata(one_file), file_format=file_format))


def test_a_context_can_be_sent_to_another_process_and_holds_no_key(one_file: Path):
    scan = context(SCHEMA, EqualTo("id", 5), io=PyArrowFileIO())
    sent = pickle.dumps(scan)
    assert DEK not in sent
    assert read(pickle.loads(sent), task(one_file, key=metadata(one_file))).num_rows == 1  # noqa: S301


def test_reprs_and_errors_show_no_key(one_file: Path):
    one = task(one_file, key=metadata(one_file))
    assert DEK.decode() not in repr(one)
    with pytest.raises(IntegrityError) as caught:
        read(context(SCHEMA), task(one_file, key=metadata(one_file, dek=OTHER_DEK)))
    assert OTHER_DEK.decode() not in str(caught.value)
    assert OTHER_DEK.hex() not in str(caught.value)
