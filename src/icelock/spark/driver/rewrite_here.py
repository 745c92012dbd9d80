"""Tasks that remove rows from data files, run by the calling process of a classic session.

Splits have the keys of their files. They are the rows of a DataFrame, one a split, sealed (``spark.sealed.splits``), and each is a
partition of its own; ``mapInArrow`` does the work and returns the sealed message of each task.

Small work is done in the calling process, without a Spark job: ``SMALL`` bytes take it less than Spark needs to start a task in a
Python worker.

Not here: which files (``spark.driver.plan_read``), the work on a file (``spark.task.row_rewrite``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa
from pyiceberg.io import FileIO
from pyspark.sql import SparkSession

from icelock.io.listing import delete_files
from icelock.keys.entropy import SystemEntropy
from icelock.spark.driver.write_here import run_tasks
from icelock.spark.sealed.messages import SealedFiles
from icelock.spark.sealed.splits import KEY_LENGTH, sealed_rows
from icelock.spark.task.row_rewrite import RewritePlan, RewriteSplit, rewrite_files, rewrite_sealed

SMALL: Final = 8 << 20
_FEW_ROWS: Final = 1_000_000  # a small file of equal values may hold very many
_PARTITIONS: Final = "spark.sql.leafNodeDefaultParallelism"
T = TypeVar("T")


def rewrite_here(spark: SparkSession, plan: RewritePlan, splits: Sequence[RewriteSplit]) -> list[SealedFiles]:
    """Remove rows from the files of splits; return the messages of the tasks, in their order. Without splits nothing is run.

    Raises:
        IntegrityError: a file fails authentication, or storage does not hold what was written.
        PySparkException: tasks failed, with icelock's error in its message.
    """
    if not splits:
        return []
    tasks = [task for split in splits for task in split.tasks]
    if sum(task.file_size for task in tasks) <= SMALL and sum(task.record_count for task in tasks) <= _FEW_ROWS:
        return [rewrite_files(plan, splits)]
    return run_splits(spark, splits, partial(rewrite_sealed, plan))


def run_splits(
    spark: SparkSession, splits: Sequence[object], work: Callable[[bytes, Iterator[pa.RecordBatch]], SealedFiles]
) -> list[SealedFiles]:
    """Run a task for each split, which ``work`` gets sealed, with the key that opens it; return the messages in the splits' order."""
    entropy = SystemEntropy()
    key = entropy.random_bytes(KEY_LENGTH)
    rows = spark.createDataFrame(sealed_rows(key, splits, entropy))
    return run_tasks(rows, partial(work, key), {_PARTITIONS: str(len(splits))})


def one_by_one(made: Iterable[T], io: FileIO, paths_of: Callable[[T], Iterable[str]]) -> Generator[T]:
    """Yield what a job made; whoever stops asking for more gets the files deleted that were not asked for."""
    left = deque(made)
    try:
        while left:
            yield left.popleft()
    finally:
        delete_files(io, [path for one in left for path in paths_of(one)])
