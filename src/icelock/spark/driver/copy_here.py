"""A rotation's copies by Spark's tasks: the calling process of a classic session says which files, and commits them.

A job copies at most ``_AT_ONCE`` files, divided by their sizes among a few tasks for each that the cluster runs at once. Splits have the
keys of their files, and messages those of the copies; both are sealed, and no executor talks to the KMS. What earlier attempts of tasks
wrote, and all that a job wrote which fails, is found by the first half of its copies' names, and deleted, if the storage can list.

Not here: which files (``table.maintenance.rotation.rotate_data``, ``table.maintenance.rotation.rotate_history``), what a task does
(``spark.task.copy_files``).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Generator, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from pyspark.sql import SparkSession

from icelock.errors import IntegrityError
from icelock.io.file_io import EncryptingFileIO
from icelock.io.listing import delete_files, list_files
from icelock.spark.driver.compact_here import storage_for_tasks
from icelock.spark.driver.interrupts import check
from icelock.spark.driver.rewrite_here import SMALL, one_by_one, run_splits
from icelock.spark.sealed.hpke import Recipient
from icelock.spark.settings.session import settings_of
from icelock.spark.task.copy_files import CopyPlan, FileCopy, FilesCopied, copy_sealed
from icelock.spark.task.splits import shares
from icelock.table.maintenance.rotation.copied_files import NewPlace, ToCopy, copy_here
from icelock.table.table import Table

_JOB: Final = "copy"
_AT_ONCE: Final = 2000
_OPENING: Final = 64 << 10  # what a file costs at least
_SHARES: Final = 4  # tasks for each that the cluster runs at once, so that one of slow storage does not end last
_SPECULATION: Final = "spark.speculation"
_logger = logging.getLogger(__name__)

Places = list[NewPlace] | Exception


class CopyByTasks:
    """``CopyFiles`` for a table, in one session."""

    def __init__(self, spark: SparkSession, table: Table) -> None:
        self._spark = spark
        self._table = table

    def __call__(self, io: EncryptingFileIO, groups: Sequence[Sequence[ToCopy]]) -> Generator[Places]:
        """Yield the copies of each group; see ``CopyFiles``. Groups of one job fail together."""
        if sum(_cost(copy) for group in groups for copy in group) <= SMALL:
            yield from copy_here(io, groups)
            return
        for some in _jobs(groups):
            yield from one_by_one(self._copied(io, some), io, _paths)

    def _copied(self, io: EncryptingFileIO, groups: Sequence[Sequence[ToCopy]]) -> list[Places]:
        """Copy some groups in one job."""
        copies = [copy for group in groups for copy in group]
        try:
            places = iter(self._run(io, copies))
        except Exception as e:  # noqa: BLE001 - whoever asked decides
            _sweep(io, copies)
            return [e for _ in groups]
        except BaseException:
            _sweep(io, copies)
            raise
        return [list(islice(places, len(group))) for group in groups]

    def _run(self, io: EncryptingFileIO, copies: Sequence[ToCopy]) -> list[NewPlace]:
        recipient = Recipient.new(str(uuid.uuid4()), _JOB)
        number = min(len(copies), settings_of(self._spark).parallelism * _SHARES)
        divided = shares([_cost(copy) for copy in copies], number)
        plan = CopyPlan(
            storage=storage_for_tasks(io, self._table.catalog),
            location=self._table.metadata.location,
            data_key_length=io.manager.data_key_length,
            sender=recipient.sender,
        )
        splits = [[_split(copies[place]) for place in share] for share in divided]
        messages = run_splits(self._spark, splits, partial(copy_sealed, plan))
        check()
        told = [FilesCopied.open(message, recipient, task=task) for task, message in enumerate(messages)]
        places = _places(copies, divided, told)
        if any(one.retried for one in told) or self._spark.sparkContext.getConf().get(_SPECULATION) == "true":
            _sweep(io, copies, {place.path for place in places})
        return places


def _places(copies: Sequence[ToCopy], divided: Sequence[Sequence[int]], told: Sequence[FilesCopied]) -> list[NewPlace]:
    """Return where the copies lie, in the order of the files.

    Raises:
        IntegrityError: a task tells of more or fewer files than it was given.
    """
    found: dict[int, NewPlace] = {}
    for share, one in zip(divided, told, strict=True):
        if len(one.copies) != len(share):
            raise IntegrityError(f"a task was given {len(share)} files to copy, and tells of {len(one.copies)}")
        for place, (path, length, key_metadata) in zip(share, one.copies, strict=True):
            found[place] = NewPlace(path=path, length=length, key_metadata=key_metadata)
    return [found[number] for number in range(len(copies))]


def _paths(places: Places) -> list[str]:
    return [] if isinstance(places, Exception) else [place.path for place in places]


def _split(copy: ToCopy) -> FileCopy:
    before, after = copy.halves
    file = copy.file
    return FileCopy(
        path=file.file_path, file_format=file.file_format.value, key_metadata=file.key_metadata or b"", before=before, after=after
    )


def _cost(copy: ToCopy) -> int:
    """Return about how many bytes a copy takes."""
    return max(int(copy.file.file_size_in_bytes), _OPENING)


def _jobs(groups: Sequence[Sequence[ToCopy]]) -> Iterator[list[Sequence[ToCopy]]]:
    """Yield some groups at a time."""
    some: list[Sequence[ToCopy]] = []
    for group in groups:
        if some and sum(map(len, some)) + len(group) > _AT_ONCE:
            yield some
            some = []
        some.append(group)
    if some:
        yield some


def _sweep(io: EncryptingFileIO, copies: Sequence[ToCopy], kept: Collection[str] = ()) -> None:
    """Delete what tasks wrote for a job, but for what is kept."""
    begun = {copy.halves[0].rpartition("/")[2] for copy in copies}
    length = max(map(len, begun))
    names = {path.rpartition("/")[2] for path in kept}
    try:
        listed = (file.location for folder in _folders(copies) for file in list_files(io, folder))
        there = {path for path in listed if (name := path.rpartition("/")[2])[:length] in begun and name not in names}
    except Exception as e:  # noqa: BLE001 - the job's own error matters more
        _logger.debug("could not list files of a job that copied: %s", e)
        return
    if left := delete_files(io, there):
        _logger.debug("copies are left, they belong to no table: %s", ", ".join(left))


def _folders(copies: Sequence[ToCopy]) -> Collection[str]:
    """Return the folders in which copies may lie."""
    folders = {copy.location.rpartition("/")[0] for copy in copies}
    return {folder for folder in folders if not any(f"{folder}/".startswith(f"{other}/") for other in folders if other != folder)}
