"""Which version of a table rows were read from, so that a write of these rows to the same table is no blind one.

An overwrite by rows of the table itself loses what other writers committed after the rows were read, unless it looks at these commits.
So each scan carries the heads of its table's branches in its plan: Spark's own scan in its FileIndex (``NativeScan.java``), the data
source's in the pickle of its Python object (``spark.driver.plan_read.Loaded``), a read over Connect in its sealed job. Before a write the
plan of its rows is searched for them (``OwnRows.java``, or the client's own plan over Connect), and the commit validates from there:

    ``write_to``, ``upsert``      the caller's process looks
    ``df.write.format(...)``      the optimizer rule does, and hands what it found over as an option; classic sessions only

What a read by time travel saw is what the table was like when it was made: who writes an old snapshot back means it.

Not here: which commits are conflicts (``table.commit.conflicts``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from icelock.errors import PolicyError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icelock.spark.settings.options import TableName
    from icelock.spark.settings.session import Settings
    from icelock.table.commit.conflicts import Since

FORMAT: Final = "icelock"
VALIDATE_FROM: Final = "validate-from-snapshot-id"
ROWS_READ: Final = "icelock-rows-read"
_BEGIN: Final = "icelock seen["
_END: Final = "]icelock seen"
_UNKNOWN: Final = "?"
_MAIN: Final = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A table as rows were read: the snapshot that each of its branches had."""

    table_uuid: str
    heads: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, metadata: Any) -> Self:
        """Take it from a table's metadata."""
        heads = {name: ref.snapshot_id for name, ref in metadata.refs.items() if ref.snapshot_ref_type == "branch"}
        return cls(table_uuid=str(metadata.table_uuid), heads=heads)

    def to_text(self) -> str:
        """Return it as ASCII without newlines."""
        return json.dumps({"uuid": self.table_uuid, "heads": self.heads})

    def marked(self) -> str:
        """Return it as it is found in a pickle."""
        return f"{_BEGIN}{self.to_text()}{_END}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return what ``to_text`` wrote."""
        found = json.loads(text)
        return cls(table_uuid=found["uuid"], heads=found["heads"])


def seen_in(text: str, table: TableName) -> tuple[Seen, ...]:
    """Return what the scans of a plan say (``OwnRows.seen``).

    Raises:
        PolicyError: a scan of this table does not say what it reads.
    """
    lines = [line for line in text.split("\n") if line]
    if f"{_UNKNOWN}{table}" in lines:
        _refuse(table, "was read with a schema of the user's, so each query reads the newest snapshot")
    return tuple(Seen.from_text(line) for line in lines if not line.startswith(_UNKNOWN))


def rows_seen(df: DataFrame, table: TableName, settings: Settings) -> tuple[Seen, ...]:
    """Return which versions of icelock tables a DataFrame's rows come from, as far as its plan tells.

    Raises:
        PolicyError: a scan of this table does not say what it reads.
    """
    if getattr(df.sparkSession, "_jsparkSession", None) is not None:
        from icelock.spark.jvm.rules import seen_in_plan

        return seen_in(seen_in_plan(df, FORMAT), table)
    connect: Any = df  # Connect's own DataFrame
    plan = connect._plan.to_proto(connect.sparkSession.client)  # noqa: SLF001
    return tuple(_of_options(options, table, settings) for options in _sources(plan))


def _of_options(options: Mapping[str, str], table: TableName, settings: Settings) -> Seen:
    """Return what a Connect plan's scan with these options reads."""
    from icelock.spark.sealed.job import JOB, Job

    if JOB in options:
        job = Job.open(settings, options[JOB])
        if job.seen:
            return job.seen[0]
    if str(table) in (options.get("path"), options.get("table")):
        _refuse(table, "was read by spark.read, whose snapshot the server keeps to itself: read it by icelock.spark.read")
    return Seen(table_uuid="")


def _sources(message: Any) -> Iterable[Mapping[str, str]]:
    """Yield the options of the icelock scans in a Connect plan."""
    for descriptor, value in message.ListFields():
        if descriptor.type != descriptor.TYPE_MESSAGE:
            continue
        if descriptor.message_type.GetOptions().map_entry:
            parts = [part for part in value.values() if hasattr(part, "ListFields")]
        else:
            parts = list(value) if hasattr(value, "append") or hasattr(value, "add") else [value]
        for part in parts:
            if part.DESCRIPTOR.name == "DataSource" and part.format.lower() == FORMAT:
                options = {name.lower(): option for name, option in part.options.items()}
                yield {**options, "path": part.paths[0]} if part.paths else options
            yield from _sources(part)


def _refuse(table: TableName, why: str) -> None:
    raise PolicyError(
        f"the rows come from table {table} itself, which {why}; so it is not known since when other writers' commits are to be looked at: "
        f"say it by option({VALIDATE_FROM!r}, <the snapshot that was read>)"
    )


def base_of(metadata: Any, seen: Iterable[Seen], branch: str) -> Since | None:
    """Return from which snapshot of a branch a write of rows that were read from the table is validated: the oldest; None if none were.

    Args:
        metadata: of the table, as it is now.
        seen: what the rows come from.
        branch: that is written.
    """
    from icelock.table.commit.conflicts import Since

    uuid = str(metadata.table_uuid)
    bases = [one.heads.get(branch, one.heads.get(_MAIN)) for one in seen if one.table_uuid == uuid]
    if not bases:
        return None
    line: dict[int | None, int] = {}
    ref = metadata.refs.get(branch)
    current = None if ref is None else metadata.snapshot_by_id(ref.snapshot_id)
    while current is not None:
        line[current.snapshot_id] = len(line)
        current = None if current.parent_snapshot_id is None else metadata.snapshot_by_id(current.parent_snapshot_id)
    line.setdefault(None, len(line))
    # One that the branch does not come from any more is a conflict, which the commit finds.
    return Since(snapshot_id=max(bases, key=lambda base: line.get(base, len(line) + 1)))
