"""What a short file may unpack to: files of a few bytes that would take gigabytes end in a FormatError, and memory stays small.

Sizes are worked out by hand: n zero bytes in deflate take about n / 1030 bytes, in Zstandard n / 32000, in gzip as in deflate.
"""

from __future__ import annotations

import gzip
import io
import tracemalloc
import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from icelock import properties as names
from icelock.errors import FormatError, PolicyError
from icelock.io.avro.read import AvroFile, RowDecoder
from icelock.io.limits import DEFAULT_LIMITS, Limits, read_all
from icelock.io.plain_input import PlainBytes
from icelock.metadata.table_metadata import decode_metadata, read_metadata
from icelock.spark.settings.catalogs import executor_properties
from tests.unit.io.test_avro import block, container, long

MIB = 1 << 20
BYTES = b'{"type": "record", "name": "r", "fields": [{"name": "a", "type": "bytes"}]}'
NULLS = b'{"type": "record", "name": "r", "fields": [{"name": "a", "type": "null"}]}'
INTS = b'{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}'


def gigabyte(codec: str) -> bytes:
    if codec == "deflate":
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return b"".join(packer.compress(bytes(MIB)) for _ in range(1024)) + packer.flush()
    frame: bytes = pa.compress(bytes(MIB), codec="zstd", asbytes=True)
    return frame * 1024  # frames one behind the other are one stream


def read(data: bytes, limits: Limits = DEFAULT_LIMITS) -> int:
    file = AvroFile(PlainBytes(location="f.avro", data=data), limits)
    decoder = RowDecoder(file.schema, file.schema, location="f.avro")
    return sum(len(decoder.rows(one)) for one in file.blocks())


@pytest.fixture
def small_memory() -> Iterator[None]:
    """Python's own memory stays below 200 MiB: the limits are looked at while a file is unpacked, not behind it."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 * MIB, peak


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("codec", ["deflate", "zstandard"])
def test_a_block_that_unpacks_to_a_gigabyte_is_refused_on_the_way(codec: str) -> None:
    with pytest.raises(FormatError, match=r"f\.avro holds more than 67108864 bytes in an Avro block.*icelock\.limits\.avro-block-bytes"):
        read(container(block(1, gigabyte(codec)), codec=codec.encode(), schema=BYTES))


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_a_block_of_the_limit_is_read_and_one_byte_more_is_not(codec: str) -> None:
    plain = long(MIB) + bytes(MIB)
    packed = {
        "null": plain,
        "deflate": zlib.compress(plain)[2:-4],
        "snappy": pa.compress(plain, codec="snappy", asbytes=True) + zlib.crc32(plain).to_bytes(4, "big"),
        "zstandard": pa.compress(plain, codec="zstd", asbytes=True),
    }[codec]
    data = container(block(1, packed), codec=codec.encode(), schema=BYTES)
    assert read(data, Limits(avro_block_bytes=len(plain))) == 1
    with pytest.raises(FormatError, match="avro-block-bytes"):
        read(data, Limits(avro_block_bytes=len(plain) - 1))


@pytest.mark.usefixtures("small_memory")
def test_a_snappy_block_that_claims_much_is_refused_before_it_is_unpacked() -> None:
    with pytest.raises(FormatError, match="avro-block-bytes"):
        read(container(block(1, b"\xff\xff\xff\xff\x07" + bytes(200 * MIB // 64)), codec=b"snappy", schema=BYTES))


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("rows", [2_000_001, 2 * 10**8, 1 << 62])
@pytest.mark.parametrize("schema", [NULLS, INTS, b'{"type": "record", "name": "r", "fields": []}'])
def test_rows_that_take_no_bytes_take_no_memory(rows: int, schema: bytes) -> None:
    """A file of 123 bytes claimed 2 * 10^8 rows of null, and took 858 MB."""
    with pytest.raises(FormatError, match="avro-block-rows"):
        read(container(block(rows, b""), schema=schema))


def test_all_blocks_of_a_manifest_have_a_limit_together() -> None:
    file = container(*[block(10, b"\0" * 10)] * 10, schema=INTS)

    def read_whole(**limits: int) -> int:
        return sum(one.rows for one in AvroFile(PlainBytes(location="m.avro", data=file), Limits(**limits)).all_blocks())

    assert read_whole(manifest_entries=100, manifest_bytes=100) == 100
    with pytest.raises(FormatError, match=r"99 entries.*manifest-entries"):
        read_whole(manifest_entries=99)
    with pytest.raises(FormatError, match=r"99 bytes.*manifest-bytes"):
        read_whole(manifest_bytes=99)


class _File:
    """An input file of some bytes."""

    location = "file:/t/00001-a.gz.metadata.json"

    def __init__(self, data: bytes) -> None:
        self.open = lambda: io.BytesIO(data)


@pytest.mark.usefixtures("small_memory")
def test_metadata_that_unpacks_to_more_than_the_limit_is_refused_on_the_way() -> None:
    bomb = io.BytesIO()
    with gzip.open(bomb, "wb") as stream:
        for _ in range(1024):
            stream.write(b" " * MIB)
    with pytest.raises(FormatError, match=r"gz\.metadata\.json holds more than 134217728 bytes.*metadata-bytes"):
        decode_metadata(bomb.getvalue(), location=_File.location)


def test_metadata_of_the_limit_is_read_and_more_is_not() -> None:
    text = b'{"format-version": 9}'
    with pytest.raises(FormatError, match="format version 9"):
        decode_metadata(gzip.compress(text), location=_File.location, limit=len(text))
    with pytest.raises(FormatError, match="metadata-bytes"):
        decode_metadata(gzip.compress(text), location=_File.location, limit=len(text) - 1)
    file: Any = _File(text)
    with pytest.raises(FormatError, match="metadata-bytes"):
        read_metadata(file, len(text) - 1)


@pytest.mark.parametrize(
    "data", [b"", b"{}", gzip.compress(b"{}", mtime=0)[:-3], gzip.compress(b"{}", mtime=0)[:5], b"\x1f\x8b" + bytes(20)]
)
def test_what_is_no_gzip_file_is_a_format_error(data: bytes) -> None:
    with pytest.raises(FormatError, match="00001-a"):
        decode_metadata(data, location=_File.location)


def test_a_file_that_is_too_large_is_not_read() -> None:
    class Stream(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise AssertionError

    with pytest.raises(FormatError, match="x holds more than 9 bytes"):
        read_all(Stream(bytes(10)), "x", limit=9, name=names.LIMIT_MANIFEST_BYTES)


@pytest.mark.parametrize("value", ["0", "-1", "", "many", "1e9", "1.5", "٣", str(1 << 63), None])
def test_a_limit_is_a_whole_number_above_0(value: Any) -> None:
    with pytest.raises(PolicyError, match=r"icelock\.limits\.manifest-bytes"):
        names.check_catalog_properties({"icelock.limits.manifest-bytes": value})


def test_a_misspelt_limit_is_refused_with_the_known_one() -> None:
    with pytest.raises(PolicyError, match=r"did you mean 'icelock\.limits\.metadata-bytes'"):
        names.check_catalog_properties({"icelock.limits.metadata-byte": "1"})
    with pytest.raises(PolicyError, match="unknown table property"):
        names.check_table_properties({"icelock.limits.metadata-bytes": "1"})


def test_limits_are_read_by_their_names_and_go_to_executors() -> None:
    given = {"icelock.limits.avro-block-rows": "7", "icelock.limits.delete-bytes": " 8 "}
    assert Limits.of(given) == Limits(avro_block_rows=7, delete_bytes=8)
    assert executor_properties({**given, "kms.x": "y"}, {}) == given
