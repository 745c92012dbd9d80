"""Streams of another encoder, sound ones and ones with one fault, through the reader and, where sound, the writer."""

from __future__ import annotations

import hashlib
import io

import pytest

from icelock import errors
from icelock.format.key_metadata import FileKey, KeyMetadata
from icelock.io.streams import Ags1Reader, Ags1Writer
from icelock.secret import SecretBytes
from tests.unit.io.fakes import Nonces, Sink
from tests.vectors.ags1 import reference

VECTORS = {vector["name"]: vector for vector in reference.load()}
SOUND = [name for name, vector in VECTORS.items() if "error" not in vector["expect"]]
LOCATION = "s3://lake/db/t/metadata/m0.avro"


def made(vector):
    writer = reference.WRITERS[vector.get("made", "stream")]
    stream = writer(
        bytes.fromhex(vector["key"]), bytes.fromhex(vector["aad_prefix"] or ""), reference.plaintext(vector["plaintext_length"])
    )
    assert len(stream) == vector["stream_length"]
    assert hashlib.sha256(stream).hexdigest() == vector["stream_sha256"]
    assert stream.hex() == vector.get("stream_hex", stream.hex())
    return stream


def opened_with(vector):
    """Key metadata: that of the stream before its fault, unless the key metadata is the fault."""
    values = {"key": vector["key"], "aad_prefix": vector["aad_prefix"], "encrypted_length": vector["stream_length"]}
    values |= vector.get("opened_with", {})
    prefix = values["aad_prefix"]
    return KeyMetadata(
        dek=SecretBytes(bytes.fromhex(values["key"])),
        aad_prefix=None if prefix is None else bytes.fromhex(prefix),
        encrypted_length=values["encrypted_length"],
    )


def read(vector):
    raw = io.BytesIO(reference.damage(made(vector), vector.get("fault")))
    try:
        with Ags1Reader(raw, opened_with(vector), LOCATION) as reader:
            return reader.read()
    finally:
        assert raw.closed


def test_there_are_vectors_of_both_kinds_and_each_negative_one_has_one_fault():
    assert len(SOUND) >= 15
    assert len(VECTORS) - len(SOUND) >= 60
    for name, vector in VECTORS.items():
        faults = sum(part in vector for part in ("made", "fault", "opened_with"))
        assert faults == (0 if name in SOUND else 1), name


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_foreign_stream_is_read(name):
    """C-02, C-04."""
    vector = VECTORS[name]
    assert hashlib.sha256(read(vector)).hexdigest() == vector["expect"]["plaintext_sha256"]


@pytest.mark.parametrize("name", [name for name in SOUND if len(bytes.fromhex(VECTORS[name]["aad_prefix"] or "")) == 16])
def test_the_writer_makes_the_foreign_stream_from_the_same_nonces(name):
    vector = VECTORS[name]
    key = FileKey(dek=SecretBytes(bytes.fromhex(vector["key"])), aad_prefix=bytes.fromhex(vector["aad_prefix"]))
    sink = Sink()
    with Ags1Writer(sink, key, LOCATION, Nonces()) as writer:
        writer.write(reference.plaintext(vector["plaintext_length"]))
    assert hashlib.sha256(sink.data).hexdigest() == vector["stream_sha256"]
    assert writer.encrypted_length == vector["stream_length"]


@pytest.mark.parametrize("name", [name for name in VECTORS if name not in SOUND])
def test_one_fault_is_refused_with_its_error_and_the_file_is_named(name):
    """C-02, C-03, C-62, C-67, J-01, J-07: each vector names the cases that it stands for."""
    vector = VECTORS[name]
    with pytest.raises(errors.IcelockError) as caught:
        read(vector)
    assert type(caught.value) is getattr(errors, vector["expect"]["error"])
    assert vector["expect"]["message"] in str(caught.value)
    assert str(caught.value).startswith(LOCATION)
