"""What an audit is asked to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, get_args

from icelock.errors import PolicyError


class Depth(StrEnum):
    """How deep an audit looks; ``bytes`` and ``foreign`` include ``open``, which includes ``metadata``."""

    METADATA = "metadata"
    OPEN = "open"
    BYTES = "bytes"
    FOREIGN = "foreign"


Snapshots = Literal["all", "current"]
Progress = Callable[[int, int], None]
_DEEPER: Final = {Depth.OPEN, Depth.BYTES, Depth.FOREIGN}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """See ``audit.run.audit``; ``most`` findings of each code are kept, ``now_ms`` is the time since 1970."""

    depths: frozenset[Depth]
    snapshots: Snapshots = "all"
    threads: int = 8
    most: int = 100
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    @classmethod
    def of(cls, depth: str | Iterable[str], *, snapshots: str, threads: int, most: int) -> AuditOptions:
        """Check what a user asks for.

        Raises:
            PolicyError: an unknown depth or choice of snapshots, ``foreign`` without all snapshots, or a number below 1.
        """
        given = [depth] if isinstance(depth, str) else list(depth)
        try:
            depths = frozenset(map(Depth, given))
        except ValueError as e:
            raise PolicyError(f"{e} of an audit; known: {', '.join(Depth)}") from e
        if not depths:
            raise PolicyError(f"an audit needs a depth: {', '.join(Depth)}")
        if snapshots not in get_args(Snapshots):
            raise PolicyError(f"snapshots is {snapshots!r}; known: {', '.join(get_args(Snapshots))}")
        if Depth.FOREIGN in depths and snapshots != "all":
            raise PolicyError("depth foreign needs all snapshots: files of the others would pass for left over")
        if threads < 1 or most < 1:
            raise PolicyError("threads and the number of findings that are kept are 1 or more")
        return cls(depths=depths, snapshots="all" if snapshots == "all" else "current", threads=threads, most=most)

    @property
    def opens(self) -> bool:
        """Whether files are opened."""
        return bool(self.depths & _DEEPER)

    @property
    def every_byte(self) -> bool:
        """Whether they are read to the end."""
        return Depth.BYTES in self.depths
