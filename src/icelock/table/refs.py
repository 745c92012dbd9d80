"""Branches and tags by name: an unknown one is refused, and the error lists those that there are.

PyIceberg would create an empty branch of that name; Java's begins with the main branch's rows, and Spark's writes refuse it.

Not here: making and moving them (``table.commit.branches``).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType

from icelock.errors import PolicyError


def no_such_ref(refs: Mapping[str, SnapshotRef], name: str, kind: str | None = None) -> str:
    """Return the message for a name that is not a branch or tag of a table; with ``kind``, not a ``branch`` or not a ``tag``."""
    have = sorted(other for other, ref in refs.items() if kind in {None, ref.snapshot_ref_type})
    near = difflib.get_close_matches(str(name), have, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"has no {kind or 'branch or tag'} {name!r}; {hint}it has: {', '.join(have) or 'none'}"


def check_branch(refs: Mapping[str, SnapshotRef], branch: str | None, *, table: str) -> None:
    """Check that a branch can be written to; the main branch always exists, and None is a snapshot on no branch.

    Raises:
        PolicyError: no such branch, or a tag.
    """
    if branch is None or branch == MAIN_BRANCH:
        return
    found = refs.get(branch)
    if found is None:
        make = "to create it, call table.manage_snapshots().create_branch(snapshot_id, name).commit()"
        remedy = make if refs else "write to the main branch first"
        raise PolicyError(f"table {table} {no_such_ref(refs, branch, SnapshotRefType.BRANCH)}; nothing was written: {remedy}")
    if found.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise PolicyError(f"{branch!r} of table {table} is a tag, which cannot be written to: write to a branch")
