"""Compiled classes that are kept for the next session: jars in a folder that only the user may write to.

    $XDG_CACHE_HOME/icelock/  (~/.cache/icelock/)      mode 0700, owned by the user; otherwise nothing is kept, or taken from it
        icelock-native-<digest of what it was made of>-<digest of the jar>.jar

What a name says of a jar is checked before the jar is used, so one that was cut off or changed is made again.

Not here: compiling (``spark.jvm.classes``).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from icelock.kms.private_file import replace_file

_DIGITS: Final = 32
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_logger = logging.getLogger(__name__)


def kept_jar(name: str, made_of: Iterable[str]) -> str | None:
    """Return the path of a jar that was kept, and is as it was; None if there is none."""
    folder = _folder()
    if folder is None:
        return None
    for path in sorted(folder.glob(f"{name}-{_digest(*made_of)}-*.jar")):
        with contextlib.suppress(OSError):
            if path.stem.rpartition("-")[2] == _of_bytes(path.read_bytes()):
                return str(path)
            path.unlink()
    return None


def keep_jar(name: str, made_of: Iterable[str], jar: bytes) -> str | None:
    """Keep a jar; return its path, or None where nothing can be kept."""
    folder = _folder()
    if folder is None:
        return None
    path = folder / f"{name}-{_digest(*made_of)}-{_of_bytes(jar)}.jar"
    try:
        replace_file(path, jar)
    except OSError as e:
        _logger.debug("compiled classes are not kept in %s: %s", folder, e)
        return None
    return str(path)


def _folder() -> Path | None:
    """Return the folder; None if it cannot be had, or others may write to it."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "icelock"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except (OSError, RuntimeError) as e:
        _logger.debug("compiled classes are not kept: %s", e)
        return None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & _OTHERS:
        _logger.debug("compiled classes are not kept in %s: it is not the user's alone", folder)
        return None
    return folder


def _digest(*texts: str) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(hashlib.sha256(text.encode()).digest())
    return digest.hexdigest()[:_DIGITS]


def _of_bytes(jar: bytes) -> str:
    return hashlib.sha256(jar).hexdigest()[:_DIGITS]
