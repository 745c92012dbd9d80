"""Deletion vectors as written: Java's bytes for Java's positions, and the whole file as an independent reader takes it."""

from __future__ import annotations

import json
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from icelock.errors import IntegrityError, PolicyError
from icelock.io.files import EncryptedOutputFile
from icelock.io.puffin.write import DeletionVector, Place, write_vectors
from icelock.keys.entropy import SystemEntropy
from tests.golden import relocate
from tests.unit.arrow.deleting import blob
from tests.unit.io.fakes import FILE_KEY, KEY, NAME, PREFIX, FailingSink, MemoryFile, WrittenFile
from tests.verify.reading import KeyMetadata, Storage, ags1_open
from tests.verify.row_deletes import puffin_blobs, vector, vector_positions
from tests.verify.verify_table import Keys, Verifier

PATH = "file:/lake/db/t/data/a b=x%2Fy/1é.parquet"


def of(positions, path=PATH) -> DeletionVector:
    return DeletionVector.of(path, BitMap64(positions))


def written(vectors) -> tuple[bytes, list[Place]]:
    """The plain Puffin stream, opened by the independent reader."""
    files: dict[str, bytes] = {}
    output = EncryptedOutputFile(WrittenFile(files), FILE_KEY, SystemEntropy())
    places = write_vectors(output, vectors)
    assert files[NAME][:4] == b"AGS1"
    assert output.key_metadata.encrypted_length == len(files[NAME])
    return ags1_open(files[NAME], KeyMetadata(KEY, PREFIX, len(files[NAME])), NAME), places


def java_vectors() -> dict[str, list[int]]:
    """Each vector of Java's golden tables as hex, with its positions as the independent reader decodes them."""
    found = {}
    for table in ("mor_dv", "maint"):
        metadata = json.loads(relocate.metadata_path(table).read_text())
        storage = Storage({f"{relocate.WRITTEN_AT}{table}": str(relocate.DATA / table / "table")})
        verifier = Verifier(metadata, storage, Keys(metadata, {"keyA": [b"0123456789012345"]}))
        for snapshot in metadata["snapshots"]:
            verifier.snapshot(snapshot)
        for (path, offset), positions in verifier._deleted.vectors.items():
            plain = verifier._puffins[path]
            found[plain[offset : offset + puffin_blobs(plain, path)[offset]["length"]].hex()] = positions
    return found


def test_java_s_positions_give_java_s_bytes():
    found = java_vectors()
    assert len(found) >= 6
    for data, positions in found.items():
        assert of(positions).blob.hex() == data
        assert of(positions).cardinality == len(positions)


def test_a_blob_by_hand():
    """One array container with the two values 3 and 70000 - 65536; roaring has 16-bit keys."""
    bitmap = struct.pack("<II", 12346, 2) + struct.pack("<HHHH", 0, 0, 1, 0) + struct.pack("<II", 24, 26) + struct.pack("<HH", 3, 4464)
    data = of([3, 70_000]).blob
    assert data[4:-4] == bytes.fromhex("d1d33964") + struct.pack("<q", 1) + struct.pack("<I", 0) + bitmap
    assert data == blob([3, 70_000])


def test_runs_are_kept_as_runs():
    """A million rows in a row: one run a container of 65,536."""
    vector_of_all = of(range(1_000_000))
    assert vector_of_all.cardinality == 1_000_000
    assert len(vector_of_all.blob) < 500
    assert vector_positions(vector_of_all.blob, 1_000_000, "v") == list(range(1_000_000))


def test_the_caller_s_positions_are_not_changed():
    positions = BitMap64(range(10))
    before = positions.serialize()
    DeletionVector.of(PATH, positions)
    assert positions.serialize() == before


@settings(max_examples=60, deadline=None)
@given(st.sets(st.one_of(st.integers(0, 70_000), st.integers((1 << 32) - 3, (1 << 32) + 3)), min_size=1, max_size=300))
def test_any_positions_are_read_by_the_independent_reader(positions):
    data = of(sorted(positions)).blob
    assert vector_positions(data, len(positions), "v") == sorted(positions)


def test_dense_and_sparse_containers_are_read_by_the_independent_reader():
    chance = random.Random(7)
    positions = sorted({*chance.sample(range(65_536), 9_000), *range(70_000, 80_000), *chance.sample(range(1 << 20), 50)})
    assert vector_positions(of(positions).blob, len(positions), "v") == positions


def test_a_file_of_several_vectors_as_the_independent_reader_takes_it():
    vectors = [of([1, 2, 3], f"{PATH}{i}") for i in range(3)] + [of(range(5, 900, 7), "z")]
    plain, places = written(vectors)
    assert places[0].offset == 4
    for one, place in zip(vectors, places, strict=True):
        entry = {
            "file_path": NAME,
            "referenced_data_file": one.data_file,
            "content_offset": place.offset,
            "content_size_in_bytes": place.length,
            "record_count": one.cardinality,
        }
        assert len(vector(plain, entry)) == one.cardinality


def test_the_footer_is_java_s():
    """Type, field and inherited numbers as in the footer of a golden table; text is not escaped."""
    plain, (place,) = written([of([0, 9])])
    (found,) = puffin_blobs(plain, NAME).values()
    assert found == {
        "type": "deletion-vector-v1",
        "fields": [2147483645],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": place.offset,
        "length": place.length,
        "properties": {"referenced-data-file": PATH, "cardinality": "2"},
    }
    assert PATH.encode() in plain


def test_vectors_across_blocks_of_the_stream():
    """A blob that begins in one 1 MiB block and ends in the next."""
    vectors = [of(range(0, 8_000_000, 3), "a"), of(range(1, 8_000_000, 3), "b")]
    plain, places = written(vectors)
    assert places[1].offset < 1 << 20 < places[1].offset + places[1].length
    assert vector_positions(plain[places[1].offset :][: places[1].length], vectors[1].cardinality, "b")[-1] == 7_999_999


@pytest.mark.parametrize("call", [0, 1])
def test_a_failing_storage_leaves_no_key(call):
    class Broken(MemoryFile):
        def create(self, overwrite=False):  # noqa: ARG002, FBT002
            return FailingSink(call, OSError("storage is away"))

    output = EncryptedOutputFile(Broken({}), FILE_KEY, SystemEntropy())
    with pytest.raises(OSError, match="storage is away"):
        write_vectors(output, [of(range(0, 40_000_000, 3)), of([1])])
    with pytest.raises(OSError, match="storage is away"):
        _ = output.key_metadata


def test_bytes_that_the_storage_lost_are_noticed():
    class Losing(WrittenFile):
        lost = 1

    output = EncryptedOutputFile(Losing({}), FILE_KEY, SystemEntropy())
    with pytest.raises(IntegrityError, match="the storage lost some"):
        write_vectors(output, [of([1])])


def test_a_second_file_needs_a_second_key():
    output = EncryptedOutputFile(WrittenFile({}), FILE_KEY, SystemEntropy())
    write_vectors(output, [of([1])])
    with pytest.raises(PolicyError, match="twice with one key"):
        write_vectors(output, [of([1])])
