"""The checkpoint of a streaming query."""

from __future__ import annotations

from pathlib import Path


def forget_last_batch(checkpoint: Path) -> int:
    """Let a checkpoint be as after a kill between the table's commit and Spark's own; return the batch's number."""
    last = max((path for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    return int(last.name)
