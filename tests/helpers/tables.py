"""What tests ask of tables."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa


def load(lake: Any) -> Any:
    """Load ``db.t`` anew."""
    return lake.catalog().load_table("db.t")


def ids(table: Any, **scan: Any) -> list[int]:
    """Return the column ``id``, sorted."""
    return sorted(table.scan(**scan).to_arrow().column("id").to_pylist())


def local(location: str) -> Path:
    """Return the path of a file on this machine."""
    return Path(location.removeprefix("file://").removeprefix("file:"))


def encrypted_files(lake: Any) -> set[str]:
    """Return the data files on a lake's storage that are encrypted; what is being written is among them once it has its beginning."""
    return {name for name, data in lake.files().items() if "/data/" in name and data[:4] in {b"PARE", b"AGS1"}}


def hashed_rows(first: int, count: int) -> pa.Table:
    """Return rows of an id and a text that hardly compresses: 16 bytes of it are random."""
    numbers = range(first, first + count)
    names = [hashlib.sha256(b"%d" % number).hexdigest()[:32] for number in numbers]
    return pa.table({"id": pa.array(numbers, pa.int64()), "name": names})
