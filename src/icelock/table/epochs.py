"""Batches of streams that are written once: which ones a table has.

A commit that writes a batch has the query's id and the batch's number in its snapshot's summary, under Java's names, so that a stream that
goes from Java's writer to this one, or back, is known. An expiry takes that summary away. So the same commit sets a table property, one for
each query, with the number and the snapshot's id. Of the summaries in the branch's history the newest counts; the property counts if there
is none, unless its snapshot is still there: then the branch was rolled back to before it, and the batch is to be written again.

A query writes the batch after the last one, or the last one again. A table that has a later batch than the one to be written is an error:
the checkpoint was put back from a copy, or begins anew under an old id, or somebody set the mark. To pass over such a batch would lose
rows, since what Spark plans again need not be what it planned then.

For Spark's own queries, and the writes of ``foreachBatch`` in classic sessions, the summary also has the SHA-256 of the checkpoint's file
of offsets, which Spark writes before the batch and never again. So the offsets that a batch was written with, and those that the next one
begins with, are as the table knows them: storage that changes them, or puts older ones back, does not make a stream pass over rows, or
write some twice.

Not here: who gives the numbers (``spark.statements.streams``, ``spark.driver.this_batch``).
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
OFFSETS: Final = "icelock.stream-offsets"
_MARK: Final = re.compile(r"([0-9]{1,19}) (-?[0-9]{1,19})(?: ([0-9a-f]{64}))?")
_NAME: Final = re.compile(r"[\w.:/-]{1,128}")
_WHY: Final = (
    "another process runs this query and has gone on, or the checkpoint was changed or put back from a copy, or is a new one under an old "
    "id. Nothing was written, since rows would be lost or come twice. If another process runs the query, leave it to that one. Else begin "
    "with a new checkpoint (and for foreachBatch a new id) from where the table stands; or, if the table's mark is wrong, remove its "
    f"property {STREAM_PREFIX}<id>"
)


class EpochCommittedError(CommitError):
    """The table has this batch: nothing was committed, and nothing has to be."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """A batch: the id of the query that writes it, and its number.

    ``offsets`` is the hash of the checkpoint's file of this batch, and ``before`` that of the batch before it, in hex; None: not known.
    """

    query: str
    number: int
    offsets: str | None = None
    before: str | None = None

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
        offsets = {} if self.offsets is None else {OFFSETS: self.offsets}
        return {QUERY_ID: self.query, EPOCH_ID: str(self.number), **offsets}

    def is_in(self, metadata: TableMetadata, branch: str) -> bool:
        """Whether a branch of a table has this batch.

        Raises:
            PolicyError: it has a later one, or was written from another state of the checkpoint.
        """
        number, offsets = _last(metadata, branch, self.query)
        if number > self.number:
            raise PolicyError(f"batch {self.number} of stream {self.query} was to be written, and the table has batch {number}: {_WHY}")
        known = {self.number: self.offsets, self.number - 1: self.before}.get(number)
        if None not in (offsets, known) and offsets != known:
            raise PolicyError(f"stream {self.query} had other offsets when batch {number} was written, as the table knows: {_WHY}")
        return number == self.number

    def check(self, metadata: TableMetadata, branch: str) -> None:
        """Check that a branch does not have this batch; else it is an EpochCommittedError, or as ``is_in``."""
        if self.is_in(metadata, branch):
            raise EpochCommittedError(f"batch {self.number} of stream {self.query} is in the table: it is not written again")

    def stage(self, transaction: EncryptedTransaction, branch: str) -> None:
        """Mark the batch in the commit of what a transaction has staged, which is checked again if others commit before it."""
        producers = transaction.staged.producers
        snapshot_id = producers[-1].snapshot_id if producers else -1
        transaction.staged.checks.append(lambda metadata: self.check(metadata, branch))
        mark = f"{self.number} {snapshot_id}" if self.offsets is None else f"{self.number} {snapshot_id} {self.offsets}"
        transaction.set_properties({STREAM_PREFIX + self.query: mark})


def _last(metadata: TableMetadata, branch: str, query: str) -> tuple[int, str | None]:
    """Return the number of the last batch of a query that a branch has (-1: none), and the hash of its offsets, if that is known."""
    from pyiceberg.table.snapshots import ancestors_of  # noqa: PLC0415 - options of Spark know batches, and tasks read options

    for snapshot in ancestors_of(metadata.snapshot_by_name(branch), metadata):
        summary: Mapping[str, str] = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if summary.get(QUERY_ID) == query:
            number = whole_number(summary, EPOCH_ID, 0)
            return 0 if number is None else number, summary.get(OFFSETS)
    name = STREAM_PREFIX + query
    if name not in metadata.properties:
        return -1, None
    mark = _MARK.fullmatch(metadata.properties[name])
    if mark is None:
        raise PolicyError(
            f"table property {name} is {metadata.properties[name][:80]!r}, and a stream leaves the number of a batch and the id of a "
            "snapshot there: put these back, or remove it if no batch of the stream is to be run again"
        )
    written, of, offsets = mark.groups()
    return (int(written), offsets) if metadata.snapshot_by_id(int(of)) is None else (-1, None)
