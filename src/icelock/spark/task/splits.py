"""Which data files one Spark task reads: whole files, small ones together.

Sizes are stored bytes; a file costs at least ``read.split.open-file-cost``. The number of splits is that of ``read.split.target-size`` in
all bytes, and at least that of tasks that the cluster runs at once, if there are enough files. A file is never divided.

A split has the key metadata of its own files and no other secret; it is pickled to one executor.

Not here: which files a scan needs (``table.read.scan``).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from icelock.errors import PolicyError
from icelock.plan.task import DeleteFile, ScanTask
from icelock.properties import is_number
from icelock.secret import SecretBytes

if TYPE_CHECKING:
    from icelock.table.changes.sides import Side, Sides

TARGET_SIZE: Final = "read.split.target-size"
TARGET_SIZE_DEFAULT: Final = 128 << 20
OPEN_FILE_COST: Final = "read.split.open-file-cost"
OPEN_FILE_COST_DEFAULT: Final = 4 << 20


class Split(InputPartition):
    """The data files of one task, as plain values."""

    def __init__(self, tasks: Sequence[ScanTask]) -> None:
        super().__init__(None)
        self._tasks = tuple(_plain_task(task) for task in tasks)

    @property
    def tasks(self) -> list[ScanTask]:
        """The files to read, in the order of the plan."""
        return [_task(plain) for plain in self._tasks]

    def __len__(self) -> int:
        return len(self._tasks)

    def __repr__(self) -> str:
        # InputPartition's would print the keys.
        return f"Split({len(self._tasks)} files)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSplit:
    """What one file lost or gained (``read_live`` of ``files``), and what all of its rows say in the columns of a changelog."""

    files: Split
    labels: tuple[str, int, int]


class ChangesSplit(InputPartition):
    """What files lost and gained that one task tells, part by part, as plain values."""

    def __init__(self, parts: Sequence[Sides]) -> None:
        super().__init__(None)
        self._parts = tuple([_plain_side(side) for side in (*part.lost, *part.gained)] for part in parts)

    def parts(self) -> Iterator[Sides]:
        """Yield the parts, each with what has to be compared."""
        from icelock.plan.changes import FileChange, FileChangeKind
        from icelock.table.changes.sides import Commit, Side, Sides

        for part in self._parts:
            found = Sides()
            for plain in part:
                task, later = plain["task"], plain["later"]
                change = FileChange(
                    kind=FileChangeKind(plain["kind"]),
                    task=_task(task),
                    later=None if later is None else _task(later),
                    loses_deletes=plain["loses_deletes"],
                )
                commit = Commit(snapshot_id=plain["snapshot_id"], ordinal=plain["ordinal"])
                side = Side(change=change, commit=commit, inserted=plain["inserted"])
                (found.gained if side.inserted else found.lost).append(side)
            yield found

    def __repr__(self) -> str:
        # As Split's.
        return f"ChangesSplit({sum(map(len, self._parts))} files)"


def _plain_side(side: Side) -> dict[str, Any]:
    change = side.change
    return {
        "kind": change.kind.value,
        "task": _plain_task(change.task),
        "later": None if change.later is None else _plain_task(change.later),
        "loses_deletes": change.loses_deletes,
        "snapshot_id": side.commit.snapshot_id,
        "ordinal": side.commit.ordinal,
        "inserted": side.inserted,
    }


def plan_splits(tasks: Sequence[ScanTask], properties: Mapping[str, str], *, parallelism: int) -> list[Split]:
    """Divide files evenly: the largest first, each to the smallest split. Invalid table properties are a PolicyError."""
    if not tasks:
        return [Split([])]
    return [Split([tasks[position] for position in members]) for members in share_files(tasks, properties, parallelism=parallelism)]


def share_files(tasks: Sequence[ScanTask], properties: Mapping[str, str], *, parallelism: int) -> list[list[int]]:
    """Return the positions of the files of each split; at least one file, errors as ``plan_splits``."""
    return share_parts([[task] for task in tasks], properties, parallelism=parallelism)


def share_parts(parts: Sequence[Sequence[ScanTask]], properties: Mapping[str, str], *, parallelism: int) -> list[list[int]]:
    """Return the positions of the parts of each split, where the files of a part stay together; at least one, errors as ``plan_splits``."""
    cost = _positive(properties, OPEN_FILE_COST, OPEN_FILE_COST_DEFAULT)
    target = _positive(properties, TARGET_SIZE, TARGET_SIZE_DEFAULT)
    weights = [sum(max(task.file_size, cost) for task in part) for part in parts]
    return shares(weights, min(len(parts), max(math.ceil(sum(weights) / target), parallelism)))


def shares(weights: Sequence[int], number: int) -> list[list[int]]:
    """Divide things of these weights into so many shares that weigh alike; return their positions, in order. No share is empty."""
    bins: list[tuple[int, int, list[int]]] = [(0, index, []) for index in range(number)]
    for position in sorted(range(len(weights)), key=lambda index: -weights[index]):
        weight, index, members = heapq.heappop(bins)
        members.append(position)
        heapq.heappush(bins, (weight + weights[position], index, members))
    return sorted((sorted(members) for _, _, members in bins if members), key=lambda members: members[0])


def _positive(properties: Mapping[str, str], name: str, default: int) -> int:
    text = str(properties.get(name, default)).strip()
    if not is_number(text) or int(text) == 0:
        raise PolicyError(f"table property {name} is {text!r}; it must be a whole number of bytes above 0")
    return int(text)


def _fields(value: ScanTask | DeleteFile) -> dict[str, Any]:
    plain = {name: getattr(value, name) for name in value.__slots__}
    if plain["key_metadata"] is not None:
        plain["key_metadata"] = plain["key_metadata"].reveal()
    return plain


def plain_delete(delete: DeleteFile) -> dict[str, Any]:
    """Return a delete file as plain values, its key metadata too."""
    return _fields(delete)


def delete_of(plain: Mapping[str, Any]) -> DeleteFile:
    """Return what ``plain_delete`` was called on."""
    return DeleteFile(**_secret(plain))


def _plain_task(task: ScanTask) -> dict[str, Any]:
    return {**_fields(task), "deletes": tuple(plain_delete(delete) for delete in task.deletes)}


def _secret(plain: Mapping[str, Any]) -> dict[str, Any]:
    key_metadata = plain["key_metadata"]
    return {**plain, "key_metadata": None if key_metadata is None else SecretBytes(key_metadata)}


def _task(plain: Mapping[str, Any]) -> ScanTask:
    return ScanTask(**{**_secret(plain), "deletes": tuple(delete_of(delete) for delete in plain["deletes"])})
