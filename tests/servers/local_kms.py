"""local-kms, an emulator of AWS KMS that knows disabled and pending keys; built once from ``localkms/`` with Go into ``.cache/kms``."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers.running import free_ports, listens, running

SOURCE = Path(__file__).parent / "localkms"
CACHE = Path(__file__).parents[2] / ".cache" / "kms"


def _binary() -> Path:
    parts = [(SOURCE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum")]
    binary = CACHE / f"local-kms-{hashlib.sha256(b''.join(parts)).hexdigest()[:16]}"
    if not binary.exists():
        if shutil.which("go") is None:
            pytest.skip("go is missing: the AWS tests build local-kms with it (on Debian: apt-get install golang-go)")
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            made = Path(folder) / "local-kms"
            command = ("go", "build", "-trimpath", "-mod=readonly", "-o", str(made), ".")
            done = subprocess.run(command, cwd=SOURCE, env={**os.environ, "CGO_ENABLED": "0"}, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-2000:]
            # Another run may have been first.
            with contextlib.suppress(OSError):
                made.rename(binary)
    return binary


@contextmanager
def local_kms(folder: Path) -> Iterator[int]:
    """Start a server of its own with an empty database in ``folder``; yield its port."""
    port = free_ports()
    with running((_binary(), str(folder / "data"), str(port)), folder=folder, is_up=lambda: listens(port)):
        yield port


def rotate(port: int, arn: str) -> None:
    """Give a symmetric key a new backing key."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", f"/rotate?key={arn}", b"")
        assert connection.getresponse().status == 200
    finally:
        connection.close()
