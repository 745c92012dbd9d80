from __future__ import annotations

import array
import gc
import io

import pyarrow as pa
import pytest

from icelock.format.key_metadata import FileKey
from icelock.io.streams import Ags1Reader, Ags1Writer
from icelock.keys.entropy import SystemEntropy
from icelock.secret import SecretBytes
from tests.unit.io.fakes import FILE_KEY, KEY, MIB, NAME, PREFIX, FailingSink, Nonces, ShortSink, Sink, key_metadata, sound
from tests.vectors.ags1 import reference


def writer_to(sink, entropy=None, file_key=FILE_KEY):
    return Ags1Writer(sink, file_key, NAME, entropy or Nonces())


SIZES = [0, 1, 15, 16, 17, MIB - 1, MIB, MIB + 1, 2 * MIB, 2 * MIB + 5]
ENCRYPTED = [36, 37, 51, 52, 53, 1048611, 1048612, 1048641, 2097216, 2097249]


@pytest.mark.parametrize(("size", "encrypted"), list(zip(SIZES, ENCRYPTED, strict=True)))
def test_bytes_are_those_of_the_reference_encoder(size, encrypted):
    """C-02."""
    plain, stream = sound(size)
    sink = Sink()
    with writer_to(sink) as writer:
        assert writer.write(plain) == size
    assert sink.data == stream
    assert writer.encrypted_length == len(stream) == encrypted
    assert sink.closed


@pytest.mark.parametrize("step", [1, 999, MIB - 1, MIB, MIB + 1, 3 * MIB])
def test_bytes_do_not_depend_on_how_they_come(step):
    size = 2000 if step == 1 else 2 * MIB + 5
    plain, stream = sound(size)
    sink = Sink()
    with writer_to(sink) as writer:
        for start in range(0, size, step):
            part = plain[start : start + step]
            assert writer.write(part) == len(part)
            assert writer.tell() == start + len(part)
    assert sink.data == stream


@pytest.mark.parametrize("length", [16, 24, 32])
def test_every_key_length_does(length):
    key = bytes(range(length))
    sink = Sink()
    with writer_to(sink, file_key=FileKey(dek=SecretBytes(key), aad_prefix=PREFIX)) as writer:
        writer.write(b"abc")
    assert sink.data == reference.stream(key, PREFIX, b"abc")


def test_each_block_has_a_nonce_of_its_own():
    entropy = Nonces()
    with writer_to(Sink(), entropy) as writer:
        writer.write(bytes(2 * MIB + 5))
    assert entropy.drawn == 3
    nonces = set()
    for _ in range(2):
        sink = Sink()
        with writer_to(sink, SystemEntropy()) as writer:
            writer.write(bytes(2 * MIB + 5))
        nonces |= {sink.data[8 + i * 1048604 :][:12] for i in range(3)}
    assert len(nonces) == 6


def test_a_nonce_of_another_length_is_refused():
    class Short:
        def random_bytes(self, n):
            return bytes(n - 1)

    writer = writer_to(Sink(), Short())
    writer.write(b"abc")
    with pytest.raises(ValueError, match=r"assignment|structure"):
        writer.close()
    with pytest.raises(ValueError, match=r"assignment|structure"):
        _ = writer.encrypted_length


def test_the_first_block_leaves_with_the_header_in_one_write_and_nothing_before_it():
    sink = Sink()
    writer = writer_to(sink)
    writer.write(bytes(MIB - 1))
    assert sink.chunks == []
    writer.write(b"x")
    assert [len(chunk) for chunk in sink.chunks] == [8 + 1048604]
    writer.close()
    assert len(sink.chunks) == 1


def test_caller_may_change_its_buffer_after_write():
    plain, stream = sound(2 * MIB + 5)
    sink = Sink()
    buffer = bytearray(plain)
    with writer_to(sink) as writer:
        writer.write(memoryview(buffer)[: MIB + 1])
        buffer[: MIB + 1] = bytes(MIB + 1)
        writer.write(memoryview(buffer)[MIB + 1 :])
        buffer[:] = bytes(len(buffer))
    assert sink.data == stream


def test_a_sink_that_keeps_what_it_is_given_by_reference_has_the_right_bytes():
    plain, stream = sound(2 * MIB + 5)
    sink = Sink()
    with writer_to(sink) as writer:
        writer.write(plain)
    assert [len(chunk) for chunk in sink.chunks] == [8 + 1048604, 1048604, 33]
    assert sink.data == stream


def test_any_buffer_is_taken_as_bytes():
    numbers = array.array("I", [1, 2, 3])
    sink = Sink()
    with writer_to(sink) as writer:
        assert writer.write(numbers) == 12
        assert writer.write(b"") == 0
    with Ags1Reader(io.BytesIO(sink.data), key_metadata(writer.encrypted_length), NAME) as reader:
        assert reader.read() == numbers.tobytes()


def test_what_is_no_buffer_is_refused_and_the_writer_goes_on():
    sink = Sink()
    with writer_to(sink) as writer:
        for wrong in ("text", 1, None):
            with pytest.raises(TypeError):
                writer.write(wrong)
        writer.write(b"abc")
    assert sink.data == reference.stream(KEY, PREFIX, b"abc")


def test_it_is_a_writable_raw_stream_that_does_not_seek_or_read():
    writer = writer_to(Sink())
    assert isinstance(writer, io.RawIOBase)
    assert (writer.writable(), writer.seekable(), writer.readable()) == (True, False, False)
    for call in (lambda: writer.seek(0), lambda: writer.read(1), writer.truncate):
        with pytest.raises(io.UnsupportedOperation):
            call()
    writer.flush()
    writer.close()


def test_it_carries_a_buffered_writer_and_an_arrow_stream():
    plain, stream = sound(MIB + 5)
    sink = Sink()
    with io.BufferedWriter(writer_to(sink), 1000) as buffered:
        for start in range(0, len(plain), 77_777):
            buffered.write(plain[start : start + 77_777])
    assert sink.data == stream
    sink = Sink()
    with pa.PythonFile(writer_to(sink), mode="w") as file:
        file.write(plain[:10])
        file.write(plain[10:])
        assert file.tell() == MIB + 5
    assert sink.data == stream


def test_a_sink_that_takes_less_is_given_the_rest():
    plain, stream = sound(MIB + 5)
    sink = ShortSink()
    with writer_to(sink) as writer:
        writer.write(plain)
    assert sink.data == stream


@pytest.mark.parametrize("taken", [0, None])
def test_a_sink_that_takes_nothing_fails_the_write(taken):
    sink = Sink()
    sink.write = lambda _: taken
    writer = writer_to(sink)
    with pytest.raises(OSError, match=f"^{NAME}: the storage took {taken} of 1048612 bytes"):
        writer.write(bytes(MIB))


def test_the_length_is_known_only_after_close():
    """C-01."""
    writer = writer_to(Sink())
    with pytest.raises(ValueError, match=f"^{NAME}: the encrypted length is known after close"):
        _ = writer.encrypted_length
    writer.close()
    writer.close()
    assert writer.encrypted_length == 36


def test_a_closed_writer_refuses_every_call():
    writer = writer_to(Sink())
    writer.close()
    for call in (lambda: writer.write(b"x"), writer.tell, writer.writable, writer.flush):
        with pytest.raises(ValueError, match="closed"):
            call()


@pytest.mark.parametrize("call", [0, 1])
def test_after_an_error_every_call_fails_with_it_and_there_is_no_result(call):
    error = OSError("disk full")
    sink = FailingSink(call, error)
    writer = writer_to(sink)
    with pytest.raises(OSError, match="disk full"):
        writer.write(bytes(2 * MIB))
    sink.countdown = -1
    for again in (lambda: writer.write(b"x"), writer.tell, writer.writable, lambda: writer.encrypted_length, writer.close):
        with pytest.raises(OSError, match="disk full") as caught:
            again()
        assert caught.value is error
    assert writer.closed
    assert sink.closed
    assert len(sink.chunks) == call
    with pytest.raises(OSError, match="disk full"):
        _ = writer.encrypted_length


def test_a_sink_that_fails_to_take_the_last_block_or_to_close_leaves_no_result():
    class Unclosable(Sink):
        def close(self):
            super().close()
            msg = "upload refused"
            raise OSError(msg)

    for sink, message in ((FailingSink(0, OSError("disk full")), "disk full"), (Unclosable(), "upload refused")):
        writer = writer_to(sink)
        writer.write(b"abc")
        with pytest.raises(OSError, match=message):
            writer.close()
        assert writer.closed
        assert sink.closed
        with pytest.raises(OSError, match=message):
            _ = writer.encrypted_length


def test_an_interrupted_write_leaves_no_result():
    sink = FailingSink(1, KeyboardInterrupt())
    writer = writer_to(sink)
    with pytest.raises(KeyboardInterrupt):
        writer.write(bytes(2 * MIB))
    sink.countdown = -1
    with pytest.raises(InterruptedError, match=f"^{NAME}: the write was interrupted by KeyboardInterrupt"):
        writer.write(b"x")
    with pytest.raises(InterruptedError):
        writer.close()
    with pytest.raises(InterruptedError):
        _ = writer.encrypted_length
    assert len(sink.chunks) == 1


def test_an_aborted_writer_has_no_last_block_and_no_result():
    sink = Sink()
    writer = writer_to(sink)
    writer.write(bytes(MIB + 5))
    writer.abort()
    writer.abort()
    writer.close()
    assert sink.closed
    assert [len(chunk) for chunk in sink.chunks] == [8 + 1048604]
    with pytest.raises(ValueError, match=f"^{NAME}: the write was aborted"):
        _ = writer.encrypted_length
    with pytest.raises(ValueError, match="closed"):
        writer.write(b"x")


def test_abort_does_not_raise_when_the_sink_does():
    class Unclosable(Sink):
        def close(self):
            msg = "upload refused"
            raise OSError(msg)

    writer = writer_to(Unclosable())
    writer.abort()
    assert writer.closed


def test_aborting_a_finished_writer_takes_nothing_away():
    writer = writer_to(Sink())
    writer.close()
    writer.abort()
    assert writer.encrypted_length == 36


def test_a_with_block_that_raises_aborts():
    sink = Sink()
    error = RuntimeError("bad row")
    writer = writer_to(sink)

    def write():
        with writer:
            writer.write(b"abc")
            raise error

    with pytest.raises(RuntimeError) as caught:
        write()
    assert caught.value is error
    assert sink.chunks == []
    assert sink.closed
    with pytest.raises(ValueError, match="aborted"):
        _ = writer.encrypted_length


def test_a_forgotten_writer_is_aborted_not_finished():
    sink = Sink()
    writer = writer_to(sink)
    writer.write(b"abc")
    del writer
    gc.collect()
    assert sink.closed
    assert sink.chunks == []
