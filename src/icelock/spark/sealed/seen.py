"""Which version of a table rows were read from, so that writing them back to it is not a blind write.

An overwrite with rows of the table itself loses what other writers committed since the rows were read, unless it checks these commits. So
each scan has the heads of its table's branches in its plan: Spark's own scan in its FileIndex (``PlannedFiles.java``), the data source's in
the pickle of its Python object (``spark.driver.loaded.Loaded``), a read over Connect in its sealed job. Before a write the plan of its
rows is searched for them (``spark.driver.run_jobs``), and the commit validates from there:

    ``write_to``, ``upsert``      the caller's process searches
    ``df.write.format(...)``      an optimizer rule searches, and sets an option (``OwnRows.java``); classic sessions only

A read by time travel has the heads of when it was made: who writes an old snapshot back means it.

Not here: which commits are conflicts (``table.commit.conflicts``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from icelock.errors import PolicyError
from icelock.spark.settings.options import VALIDATE_FROM, TableName

if TYPE_CHECKING:
    from icelock.table.commit.conflicts import Since

_BEGIN: Final = "icelock seen["
_END: Final = "]icelock seen"
_UNKNOWN: Final = "?"
_MAIN: Final = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A table when rows were read: the snapshot of each branch."""

    table_uuid: str
    heads: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, metadata: Any) -> Self:
        """Return it for a table's metadata."""
        heads = {name: ref.snapshot_id for name, ref in metadata.refs.items() if ref.snapshot_ref_type == "branch"}
        return cls(table_uuid=str(metadata.table_uuid), heads=heads)

    def to_text(self) -> str:
        """Return it as one line of ASCII."""
        return json.dumps({"uuid": self.table_uuid, "heads": self.heads})

    def marked(self) -> str:
        """Return it with marks, to be found in a pickle."""
        return f"{_BEGIN}{self.to_text()}{_END}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return what ``to_text`` wrote."""
        found = json.loads(text)
        return cls(table_uuid=found["uuid"], heads=found["heads"])


def seen_in(text: str, table: TableName) -> tuple[Seen, ...]:
    """Return the versions in a text of ``OwnRows.seen``; a scan of this table without one is a PolicyError."""
    lines = [line for line in text.split("\n") if line]
    if f"{_UNKNOWN}{table}" in lines:
        refuse(table, "was read with a user's schema, so that each query reads the newest snapshot")
    return tuple(Seen.from_text(line) for line in lines if not line.startswith(_UNKNOWN))


def refuse(table: TableName, why: str) -> NoReturn:
    """Refuse rows that come from the table that they are written to, from an unknown version."""
    raise PolicyError(
        f"the rows come from table {table} itself, which {why}; so it is unknown which commits of other writers are newer: "
        f"say it by option({VALIDATE_FROM!r}, <the snapshot that was read>)"
    )


def base_of(metadata: Any, seen: Iterable[Seen], branch: str) -> Since | None:
    """Return the snapshot of a branch that a write is validated from: the oldest that its rows were read from; None if they were not.

    ``metadata`` is the table's now, ``seen`` what the rows come from, ``branch`` the one that is written.
    """
    from pyiceberg.table.snapshots import ancestors_of

    from icelock.table.commit.conflicts import Since

    uuid = str(metadata.table_uuid)
    bases = [one.heads.get(branch, one.heads.get(_MAIN)) for one in seen if one.table_uuid == uuid]
    if not bases:
        return None
    ancestors = ancestors_of(metadata.snapshot_by_name(branch), metadata)
    line: dict[int | None, int] = {one.snapshot_id: place for place, one in enumerate(ancestors)}
    line.setdefault(None, len(line))
    # A snapshot that is no longer the branch's ancestor is a conflict, which the commit finds.
    return Since(snapshot_id=max(bases, key=lambda base: line.get(base, len(line) + 1)))
