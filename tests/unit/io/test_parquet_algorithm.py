"""Who holds no key cannot choose the algorithm of an encrypted Parquet file, and so not a value (ADR 0013)."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from pyiceberg.io import InputFile

from icelock.errors import IntegrityError
from icelock.format.key_metadata import KeyMetadata
from icelock.io.parquet import ParquetInput, decryption_properties
from icelock.secret import SecretBytes
from tests.golden.relocate import RelocatingFileIO
from tests.lakes.sqlite import KEYED, TestLake
from tests.unit.io.parquet_attack import chosen, head_at, renamed
from tests.unit.io.test_java_golden import TABLES, data_files

DEK = b"0123456789abcdef"
AAD = b"AAD-PREFIX-16-B."
AMOUNT = pa.schema([pa.field("amount", pa.int64(), nullable=False)])
VALUES = [1000003 * row for row in range(500)]
NAMED = r"failed authentication at its end: it names AES_GCM_CTR_V1 as its algorithm"
CODECS = ("uncompressed", "zstd", "snappy", "lz4_raw", "gzip")


class Bytes(InputFile):
    """A file in memory; storage that lies gives ``later`` from the ``good``-th read of its end on."""

    def __init__(self, data: bytes, *, later: bytes | None = None, good: int = 0) -> None:
        super().__init__("mem://data.parquet")
        self.data, self.later, self.good = data, later, good
        self.reads: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> Any:  # noqa: FBT001, FBT002 - PyIceberg's signature
        del seekable
        outer = self

        class Stream(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                start = self.tell()
                data = super().read(size)
                return outer.given(start, data)

            def readinto(self, buffer: Any, /) -> int:
                data = self.read(len(buffer))
                buffer[: len(data)] = data
                return len(data)

        return Stream(self.data)

    def given(self, start: int, data: bytes) -> bytes:
        self.reads.append((start, start + len(data)))
        if self.later is None or start + len(data) <= head_at(self.data):
            return data
        self.good -= 1
        return data if self.good >= 0 else self.later[start : start + len(data)]


def key(length: int | None = None) -> KeyMetadata:
    return KeyMetadata(dek=SecretBytes(DEK), aad_prefix=AAD, encrypted_length=length)


def write(table: pa.Table, algorithm: str = "AES_GCM_V1", *, row_group_size: int | None = None, **options: Any) -> bytes:
    out = io.BytesIO()
    keys = pe.create_encryption_properties(footer_key=DEK, aad_prefix=AAD, encryption_algorithm=algorithm, store_aad_prefix=False)
    pq.write_table(table, out, encryption_properties=keys, row_group_size=row_group_size, **options)
    return out.getvalue()


def read(source: InputFile, key_metadata: KeyMetadata) -> pa.Table:
    with ParquetInput(source, key_metadata) as opened:
        columns = opened.leaf_paths(range(opened.metadata.num_columns))
        groups = range(opened.metadata.num_row_groups)
        return pa.Table.from_batches([batch for group in groups for batch in opened.batches(group, columns, 1 << 16)])


@pytest.fixture
def amounts(tmp_path: Path) -> tuple[Any, Path]:
    """A table of icelock's with one file, whose pages are neither compressed nor with levels, and that file."""
    catalog = TestLake(tmp_path).catalog()
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", AMOUNT, properties={**KEYED, "write.parquet.compression-codec": "uncompressed"})
    table.append(pa.table({"amount": VALUES}, schema=AMOUNT))
    return table, Path(table.scan().scan_tasks()[0].path.removeprefix("file://"))


def test_chosen_values_without_a_key(amounts: tuple[Any, Path]):
    """Arrow alone takes the file: 497 values true but two rows late, and one as chosen. icelock gives no row of it."""
    table, path = amounts
    keys = KeyMetadata.decode(table.scan().scan_tasks()[0].key_metadata.reveal())
    forged = chosen(path.read_bytes(), row=100, mask=1 << 40)
    assert len(forged) == keys.encrypted_length
    got = pq.read_table(io.BytesIO(forged), decryption_properties=decryption_properties(keys))["amount"].to_pylist()
    assert [row for row in range(498) if got[row + 2] != VALUES[row]] == [100]
    assert got[102] == VALUES[100] ^ 1 << 40
    path.write_bytes(forged)
    attempts = {
        "rows": lambda: table.scan().to_arrow(),
        "filtered": lambda: table.scan("amount >= 1000003").to_arrow(),
        "counted": lambda: table.scan("amount >= 1000003").count(),
        "batches": lambda: list(table.scan().to_arrow_batch_reader()),
        "deleted from": lambda: table.delete("amount = 1000003"),
        "overwritten": lambda: table.overwrite(pa.table({"amount": [1]}, schema=AMOUNT), "amount = 1000003"),
    }
    for name, attempt in attempts.items():
        with pytest.raises(IntegrityError, match=rf"\.parquet {NAMED}"):
            print(name, attempt())
    assert table.refresh().current_snapshot().sequence_number == 1


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_for_another_algorithm(codec: str):
    """Whatever the codec makes of pages that were decrypted wrongly."""
    stored = write(pa.table({"amount": VALUES}, schema=AMOUNT), compression="none" if codec == "uncompressed" else codec)
    with pytest.raises(IntegrityError, match=NAMED):
        read(Bytes(renamed(stored)), key(len(stored)))


def test_a_file_that_was_written_with_the_other_algorithm():
    stored = write(pa.table({"amount": VALUES}, schema=AMOUNT), "AES_GCM_CTR_V1")
    with pytest.raises(IntegrityError, match=rf"{NAMED}.*its writer chose another algorithm"):
        read(Bytes(stored), key(len(stored)))
    forged = stored[: head_at(stored) + 1] + b"\x1c" + stored[head_at(stored) + 2 :]
    with pytest.raises(IntegrityError, match="failed authentication"):
        read(Bytes(forged), key(len(stored)))


@pytest.mark.parametrize("table", TABLES)
def test_javas_files(table: str):
    files = [file for file in data_files(table).values() if file["file_format"] == "PARQUET"]
    for file in files:
        keys = KeyMetadata.decode(file["key_metadata"])
        stored = RelocatingFileIO().local_path(file["file_path"]).read_bytes()
        assert read(Bytes(stored), keys).num_rows == file["record_count"]
        with pytest.raises(IntegrityError, match=NAMED):
            read(Bytes(renamed(stored)), keys)
    assert files or table == "avro_data"


BIG = pa.table({f"c{number}": pa.array(range(number, number + 20_000), pa.int64()) for number in range(6)})
LONG = pa.table({f"a column with the long name {number:060}": [1, 2] for number in range(800)})


@pytest.mark.parametrize("table", [BIG, LONG], ids=["long pages", "long footer"])
def test_the_end_that_was_checked_is_the_one_that_counts(table: pa.Table):
    """Storage answers two reads of one range differently: as it is at first, then with the other algorithm, and the other way round."""
    stored = write(table, compression="none", use_dictionary=False, row_group_size=5000)
    assert len(stored) > 1 << 17
    forged = renamed(stored)
    for good in range(4):
        source = Bytes(stored, later=forged, good=good)
        try:
            assert read(source, key(len(stored))).equals(table)
        except IntegrityError as e:
            assert "AES_GCM_CTR_V1" in str(e)  # noqa: PT017 - right for as long as the first read of the head gives it
        source = Bytes(forged, later=stored, good=good)
        try:
            assert read(source, key(len(stored))).equals(table)
        except IntegrityError as e:
            assert "AES_GCM_CTR_V1" in str(e)  # noqa: PT017
    source = Bytes(stored)
    assert read(source, key(len(stored))).equals(table)
    head = [(start, end) for start, end in source.reads if start <= head_at(stored) + 1 < end]
    assert len(head) == 1, "the head is read once, so there is nothing to answer differently"


def test_a_small_file_is_read_at_once():
    stored = write(pa.table({"amount": VALUES}, schema=AMOUNT))
    source = Bytes(stored)
    assert read(source, key(len(stored)))["amount"].to_pylist() == VALUES
    assert source.reads == [(0, len(stored))]


def test_each_byte_of_the_tail(capsys: pytest.CaptureFixture[str]):
    """To each value: FileCryptoMetaData, length, nonce and tag of the footer, its length, both magics. To one: each other byte."""
    table = pa.table({"a": [1, 2, 3]})
    stored = write(table)
    head, end = head_at(stored), len(stored)
    plain = [*range(4), *range(head, head + 32), *range(end - 24, end)]
    flips = {(at, flip) for at in plain for flip in range(1, 256)} | {(at, 0x40) for at in range(end)}
    counts: Counter[str] = Counter()
    for at, flip in sorted(flips):
        changed = stored[:at] + bytes([stored[at] ^ flip]) + stored[at + 1 :]
        with pytest.raises(IntegrityError, match=r"mem://data\.parquet"):
            print(at, flip, read(Bytes(changed), key()))
        counts["IntegrityError"] += 1
    assert read(Bytes(stored), key()).equals(table)
    with capsys.disabled():
        print(f"\n{len(flips)} changes of single bytes: {dict(counts)}")


def test_bytes_put_in_or_taken_out_of_the_tail():
    """With the length of the file not known. Bytes between pages and footer belong to neither, and change no row."""
    stored = write(pa.table({"a": [1, 2, 3]}))
    head, length = head_at(stored), int.from_bytes(stored[-8:-4], "little")
    for at in [*range(head, head + 40), *range(head + 40, len(stored) - 40, 7), *range(len(stored) - 40, len(stored) - 8)]:
        for put, taken in ((b"\x00", 0), (b"", 1), (b"\x1c", 0)):
            body = stored[:at] + put + stored[at + taken : -8]
            for claimed in (length, length + len(put) - taken):
                changed = body + claimed.to_bytes(4, "little") + b"PARE"
                if changed[-8 - length :] == stored[head:]:
                    assert read(Bytes(changed), key())["a"].to_pylist() == [1, 2, 3]
                    continue
                with pytest.raises(IntegrityError, match=r"mem://data\.parquet"):
                    print(at, put, taken, claimed, read(Bytes(changed), key()))
