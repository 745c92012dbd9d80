"""``CALL catalog.system.rotate``, which Java does not have: a row for each KEK.

Not here: the work (``table.maintenance.rotation.rotate``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from icelock.spark.maintain_tables import by_tasks
from icelock.spark.statements.procedures.call import Call, Procedure


def _rotate(call: Call) -> Sequence[Sequence[Any]]:
    dry_run = bool(call["dry_run"])
    done = by_tasks(call.session.spark, call.table).rotate(call.required("level").lower(), to_key=call["to_key"], dry_run=dry_run)
    rows: list[Sequence[Any]] = []
    counts = (done.rewritten_files, done.left_files, done.rotated_snapshots, done.rewritten_manifests)
    for use in done.keks:
        outcome = "made" if use.kek in done.made else "wrapped" if use.kek in done.wrapped else "kept"
        rows.append(
            (
                *(use.kek, use.master_key, use.version, f"would be {outcome}" if dry_run else outcome),
                *(use.snapshots, ", ".join(use.refs), use.files, use.bytes, use.for_new_snapshots),
                *(counts if use.kek == done.kek else (0,) * len(counts)),
            )
        )
    if dry_run and done.new_keks:
        rows.append((None, done.to_key, None, "would be made", 0, "", 0, 0, True, *counts))
    return rows


PROCEDURES: Final[Mapping[str, Procedure]] = {
    "rotate": Procedure(
        description="Give a table new keys: a new KEK, KEKs wrapped anew, or its metadata or files written again under new keys",
        parameters={"table": "string", "level": "string"},
        optional={"to_key": "string", "dry_run": "boolean"},
        result="kek string, master_key string not null, key_version string, outcome string not null, snapshots_count int not null, "
        "refs string not null, files_count bigint, bytes_count bigint, for_new_snapshots boolean not null, "
        "rewritten_data_files_count int not null, left_files_count int not null, rotated_snapshots_count int not null, "
        "rewritten_manifests_count int not null",
        run=_rotate,
    ),
}
