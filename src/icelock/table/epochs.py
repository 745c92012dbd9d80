"""Batches of streams that are written once: which ones a table has.

A commit that writes a batch has the query's id and the batch's number in its snapshot's summary, under Java's names, so that a stream that
goes from Java's writer to this one, or back, is known. An expiry takes that summary away. So the same commit sets a table property, one for
each query, with the number and the snapshot's id. Of the summaries in the branch's history the newest counts; the property counts if there
is none, unless its snapshot is still there: then the branch was rolled back behind it, and the batch is to be written again.

The number of a batch grows, so a table has all batches up to the last one that it knows.

Not here: who gives the numbers (``spark.statements.stream_writes``, ``spark.table_writer``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from icelock.errors import CommitError, PolicyError
from icelock.metadata.json_values import whole_number
from icelock.properties import STREAM_PREFIX

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from icelock.table.transaction import EncryptedTransaction

QUERY_ID: Final = "spark.sql.streaming.queryId"
EPOCH_ID: Final = "spark.sql.streaming.epochId"
_NAME: Final = re.compile(r"[\w.:/-]{1,128}")


class EpochCommittedError(CommitError):
    """The table has this batch: nothing was committed, and nothing has to be."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """A batch: the id of the query that writes it, and its number."""

    query: str
    number: int

    @classmethod
    def of(cls, query: object, number: object) -> Self:
        """Return the batch of a query's id and a number; other values are a PolicyError."""
        if not isinstance(query, str) or not _NAME.fullmatch(query):
            raise PolicyError(f"{query!r} is no id of a stream: letters, digits and . : / _ - are, up to 128 of them")
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise PolicyError(f"the number of a stream's batch is {number!r}; it must be 0 or more")
        return cls(query, number)

    @property
    def summary(self) -> dict[str, str]:
        """What the snapshot's summary says."""
        return {QUERY_ID: self.query, EPOCH_ID: str(self.number)}

    def is_in(self, metadata: TableMetadata, branch: str) -> bool:
        """Whether a branch of a table has this batch."""
        last = _last(metadata, branch, self.query)
        return last is not None and self.number <= last

    def check(self, metadata: TableMetadata, branch: str) -> None:
        """Check that a branch does not have this batch; else it is an EpochCommittedError."""
        if self.is_in(metadata, branch):
            raise EpochCommittedError(f"batch {self.number} of stream {self.query} is in the table: it is not written again")

    def stage(self, transaction: EncryptedTransaction, branch: str) -> None:
        """Mark the batch in the commit of what a transaction has staged, which is checked again if others commit before it."""
        producers = transaction.staged.producers
        snapshot_id = producers[-1].snapshot_id if producers else -1
        transaction.staged.checks.append(lambda metadata: self.check(metadata, branch))
        transaction.set_properties({STREAM_PREFIX + self.query: f"{self.number} {snapshot_id}"})


def _last(metadata: TableMetadata, branch: str, query: str) -> int | None:
    """Return the number of the last batch of a query that a branch has."""
    from pyiceberg.table.snapshots import ancestors_of  # noqa: PLC0415 - options of Spark know batches, and tasks read options

    for snapshot in ancestors_of(metadata.snapshot_by_name(branch), metadata):
        summary: Mapping[str, str] = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if summary.get(QUERY_ID) == query:
            return whole_number(summary, EPOCH_ID, 0)
    number, _, of = metadata.properties.get(STREAM_PREFIX + query, "").partition(" ")
    if not number.isdecimal() or (of.removeprefix("-").isdecimal() and metadata.snapshot_by_id(int(of)) is not None):
        return None
    return int(number)
