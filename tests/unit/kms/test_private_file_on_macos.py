"""What is written through to the disk on macOS, as this machine can see it: which calls are made."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from icelock.kms.private_file import replace_file

F_FULLFSYNC = 51  # <sys/fcntl.h> of macOS


@pytest.mark.parametrize("knows", [True, False], ids=["knows it", "a share that does not"])
def test_the_drive_is_asked_to_empty_its_cache(knows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, synced = [], []

    def call(descriptor: int, command: int) -> int:
        assert os.fstat(descriptor)
        asked.append(command)
        if not knows:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
        return 0

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", call)
    monkeypatch.setattr(os, "fsync", synced.append)
    replace_file(tmp_path / "keyring.json", b"keys")
    assert (tmp_path / "keyring.json").read_bytes() == b"keys"
    # The file, and the folder in which it is renamed.
    assert asked == [F_FULLFSYNC] * 2
    assert len(synced) == (0 if knows else 2)
