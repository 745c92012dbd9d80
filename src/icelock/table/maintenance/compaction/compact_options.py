"""The options of a compaction, with the names and defaults of Java's rewrite_data_files (1.12).

Not here: which files they choose (``table.maintenance.compaction.compact_plan``).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from pyiceberg.table import TableProperties

from icelock.errors import PolicyError
from icelock.metadata.json_values import is_long, whole_number
from icelock.nearest import hint

_UNLIMITED: Final = sys.maxsize
_HUNDRED_GB: Final = 100 << 30
_SMALLEST, _LARGEST = 0.75, 1.8  # of the target, Java SizeBasedFileRewritePlanner
_BOTH: Final = ("true", "false")
_LEFT_OUT: Final = {
    "max-concurrent-file-group-rewrites": "Spark's scheduler, or this process, decides how many run at once",
    "use-starting-sequence-number": "rewritten files always keep the sequence number of the snapshot that they were read from",
    "shuffle-partitions-per-file": "a file is one partition",
    "compression-factor": "Spark sizes the partitions of a shuffle",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions:
    """What is compacted, and how; sizes are bytes on storage.

    Args:
        target: size of new files.
        smallest: smaller files are rewritten.
        largest: larger files are rewritten.
        min_files: fewer files are left alone, unless their size is that of a new file.
        delete_files: a file with as many delete files is rewritten.
        delete_ratio: a file of whose rows this part is deleted by positions is rewritten.
        every: whether all files are rewritten.
        max_group: most bytes that are rewritten together.
        max_commits: 1, or with ``partial-progress.enabled`` how many commits the work is cut into.
        max_failed_commits: how many of these may fail.
        remove_dangling: whether delete files that apply to no data file are removed too.
        any_delete: instead of all that: a file with any delete is rewritten, and no other.
    """

    target: int
    smallest: int
    largest: int
    min_files: int = 5
    delete_files: int = _UNLIMITED
    delete_ratio: float = 0.3
    every: bool = False
    max_group: int = _HUNDRED_GB
    max_commits: int = 1
    max_failed_commits: int = 0
    remove_dangling: bool = False
    any_delete: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str], properties: Mapping[str, str]) -> Self:
        """Return the options of a call; the target is the table's unless it is given.

        Raises:
            PolicyError: an unknown option, or a value that is none.
        """
        given = _Given(options)
        names = TableProperties
        default = whole_number(properties, names.WRITE_TARGET_FILE_SIZE_BYTES, names.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT)
        target = given.whole("target-file-size-bytes", default or 0, least=1)
        partial = given.flag("partial-progress.enabled")
        commits = given.whole("partial-progress.max-commits", 10, least=1)
        failed = given.whole("partial-progress.max-failed-commits", commits, least=0)
        parsed = cls(
            target=target,
            smallest=given.whole("min-file-size-bytes", int(target * _SMALLEST), least=0),
            largest=given.whole("max-file-size-bytes", int(target * _LARGEST), least=1),
            min_files=given.whole("min-input-files", 5, least=1),
            delete_files=given.whole("delete-file-threshold", _UNLIMITED, least=0),
            delete_ratio=given.ratio("delete-ratio-threshold", 0.3),
            every=given.flag("rewrite-all"),
            max_group=given.whole("max-file-group-size-bytes", _HUNDRED_GB, least=1),
            max_commits=commits if partial else 1,
            max_failed_commits=failed if partial else 0,
            remove_dangling=given.flag("remove-dangling-deletes"),
        )
        given.check_all_known()
        if not parsed.smallest < parsed.target < parsed.largest:
            raise PolicyError(
                f"min-file-size-bytes ({parsed.smallest}) must be below target-file-size-bytes ({parsed.target}), and that below "
                f"max-file-size-bytes ({parsed.largest})"
            )
        return parsed

    @property
    def most_written(self) -> int:
        """Size at which a new file ends: more than the target, so that what is left over does not make a tiny file (Java)."""
        return self.target + (self.largest - self.target) // 2

    def output_files(self, size: int) -> int:
        """Return how many files to make of so many bytes (Java SizeBasedFileRewritePlanner.expectedOutputFiles)."""
        if size < self.target:
            return 1
        down, rest = divmod(size, self.target)
        up = down + bool(rest)
        if rest > self.smallest:
            return up
        return down if size / down < min(1.1 * self.target, self.most_written) else up


class _Given:
    """The options of a call, by name, each of which is asked for once."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._left = {name: str(value) for name, value in options.items()}
        for name in _LEFT_OUT.keys() & self._left.keys():
            raise PolicyError(f"option {name} is not supported: {_LEFT_OUT[name]}; leave it out")
        self._known: list[str] = []

    def whole(self, name: str, default: int, *, least: int) -> int:
        text = self._take(name)
        value = default if text is None else int(text) if is_long(text.strip()) else None
        if value is None or value < least:
            raise PolicyError(f"option {name} is {text!r}; it must be a whole number of at least {least}")
        return value

    def ratio(self, name: str, default: float) -> float:
        text = self._take(name)
        try:
            value = default if text is None else float(text)
        except ValueError:
            value = -1.0
        if not 0 < value <= 1:
            raise PolicyError(f"option {name} is {text!r}; it must be above 0 and at most 1")
        return value

    def flag(self, name: str) -> bool:
        text = (self._take(name) or "false").lower()
        if text not in _BOTH:
            raise PolicyError(f"option {name} is {text!r}; it must be true or false")
        return text == "true"

    def check_all_known(self) -> None:
        for name in sorted(self._left):
            raise PolicyError(f"compaction has no option {name!r}; {hint(name, sorted(self._known), otherwise='it has')}")

    def _take(self, name: str) -> str | None:
        self._known.append(name)
        return self._left.pop(name, None)
