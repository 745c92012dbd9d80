"""How fast AGS1 streams are, beside ``openssl speed -evp aes-128-gcm`` on the same machine at the same time.

Encrypts through `Ags1Writer` into a sink that counts bytes, and decrypts through `Ags1Reader` from a stream in memory,
1 GiB each way. The plain bytes and the stream are far larger than any cache, which openssl's one buffer is not. The ratio
is by CPU time, because openssl counts that (user time; ours has the system's share too); wall time stands beside it. Ours
and openssl take turns, and each number is the best of the rounds, since other work on the machine only slows one down.

    python benchmarks/ags1.py [--json] [--mib 1024] [--rounds 3] [--chunk 1048576] [--floor 0.70]

Exits with 1 if one of the ratios to openssl is below the floor.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable

import click
from rich.console import Console
from rich.table import Table

from icelock.format.key_metadata import KeyMetadata
from icelock.io.streams import Ags1Reader, Ags1Writer
from icelock.keys.entropy import SystemEntropy, mint_file_key

MIB = 1 << 20
GIB = 1 << 30
KEY_LENGTH = 16


class CountingSink:
    """Takes bytes and keeps only their number."""

    def __init__(self) -> None:
        self.count = 0

    def write(self, data: memoryview) -> int:
        self.count += len(data)
        return len(data)

    def close(self) -> None:
        pass


def openssl(*, decrypt: bool, seconds: int) -> float:
    """GiB/s of openssl's own loop over one buffer of 1 MiB."""
    direction = ["-decrypt"] if decrypt else []
    command = ["openssl", "speed", "-mr", "-evp", "aes-128-gcm", "-bytes", str(MIB), "-seconds", str(seconds), *direction]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as e:
        msg = "the openssl command is not there: install the package openssl to compare with it"
        raise click.ClickException(msg) from e
    line = next(line for line in done.stdout.splitlines() if line.startswith("+F:"))
    return float(line.rsplit(":", 1)[1]) / GIB


def timed(size: int, run: Callable[[], None]) -> tuple[float, float]:
    """GiB per second of CPU and of wall time of one run over ``size`` bytes."""
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return size / GIB / (time.process_time() - cpu), size / GIB / (time.perf_counter() - wall)


def encryption(plain: bytes, chunk: int) -> Callable[[], None]:
    """A run that writes ``plain`` by ``chunk`` bytes."""

    def run() -> None:
        sink = CountingSink()
        entropy = SystemEntropy()
        view = memoryview(plain)
        with Ags1Writer(sink, mint_file_key(entropy, KEY_LENGTH), "benchmark", entropy) as writer:
            for start in range(0, len(plain), chunk):
                writer.write(view[start : start + chunk])
        if sink.count != writer.encrypted_length:
            raise AssertionError(sink.count)

    return run


def decryption(stream: io.BytesIO, metadata: KeyMetadata, size: int, chunk: int) -> Callable[[], None]:
    """A run that reads ``stream`` by ``chunk`` bytes into one buffer."""

    class Unclosed(io.RawIOBase):
        """``stream`` again and again: closing the reader leaves it open."""

        readinto = stream.readinto
        read = stream.read
        seek = stream.seek

    def run() -> None:
        buffer = bytearray(chunk)
        count = 0
        with Ags1Reader(Unclosed(), metadata, "benchmark") as reader:
            while got := reader.readinto(buffer):
                count += got
        if count != size:
            raise AssertionError(count)

    return run


def encrypted(plain: bytes) -> tuple[io.BytesIO, KeyMetadata]:
    """The stream of ``plain`` in memory, and what opens it."""
    entropy = SystemEntropy()
    file_key = mint_file_key(entropy, KEY_LENGTH)
    stream = io.BytesIO()

    class Sink(io.RawIOBase):
        write = stream.write

    with Ags1Writer(Sink(), file_key, "benchmark", entropy) as writer:
        writer.write(plain)
    return stream, file_key.closed(writer.encrypted_length)


def measure(mib: int, rounds: int, chunk: int, seconds: int) -> list[dict[str, float | str]]:
    """One row each way: the best of the rounds, ours and openssl's by turns."""
    plain = SystemEntropy().random_bytes(MIB) * mib
    stream, metadata = encrypted(plain)
    runs = {"encrypt": encryption(plain, chunk), "decrypt": decryption(stream, metadata, len(plain), chunk)}
    rows: list[dict[str, float | str]] = []
    for way, run in runs.items():
        cpu = wall = theirs = 0.0
        for _ in range(rounds):
            once = timed(len(plain), run)
            cpu, wall = max(cpu, once[0]), max(wall, once[1])
            theirs = max(theirs, openssl(decrypt=way == "decrypt", seconds=seconds))
        speeds = {"gib_per_s": cpu, "wall_gib_per_s": wall, "openssl_gib_per_s": theirs, "ratio": cpu / theirs}
        rows.append({"way": way, "mib": mib, "chunk": chunk, **speeds})
    return rows


def table(rows: list[dict[str, float | str]]) -> Table:
    """The rows for people."""
    out = Table(title="AGS1 streams beside openssl speed -evp aes-128-gcm, GiB/s")
    for column in ("", "MiB", "bytes a call", "icelock", "by the clock", "openssl", "ratio"):
        out.add_column(column, justify="right" if column else "left")
    for row in rows:
        out.add_row(
            str(row["way"]),
            str(row["mib"]),
            f"{row['chunk']:,}",
            f"{row['gib_per_s']:.2f}",
            f"{row['wall_gib_per_s']:.2f}",
            f"{row['openssl_gib_per_s']:.2f}",
            f"{row['ratio']:.2f}",
        )
    return out


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--mib", default=1024, show_default=True, type=click.IntRange(min=1), help="Plain MiB each way.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1), help="Rounds, of which the best counts.")
@click.option("--chunk", default=MIB, show_default=True, type=click.IntRange(min=1), help="Bytes a write or read.")
@click.option("--seconds", default=1, show_default=True, type=click.IntRange(min=1), help="Seconds for openssl, each way and round.")
@click.option("--floor", default=0.70, show_default=True, help="Least ratio to openssl.")
def main(*, as_json: bool, mib: int, rounds: int, chunk: int, seconds: int, floor: float) -> None:  # noqa: PLR0913 - one an option
    """Measure AGS1 encryption and decryption beside openssl."""
    rows = measure(mib, rounds, chunk, seconds)
    if as_json:
        click.echo(json.dumps({"floor": floor, "rows": rows}, indent=2))
    else:
        Console().print(table(rows))
    if min(float(row["ratio"]) for row in rows) < floor:
        click.echo(f"below the floor of {floor}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
