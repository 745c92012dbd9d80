"""``CALL catalog.system.audit``, which Java does not have: a row for each finding. Not here: the audit (``icelock.audit``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from icelock.spark.maintain_tables import audit_loaded
from icelock.spark.statements.procedures.call import Call, Procedure


def _audit(call: Call) -> Sequence[Sequence[Any]]:
    depths = str(call["depth"] or "open").replace(",", " ").split()
    report = audit_loaded(
        call.session.spark, call.session.catalog(call.catalog), call.name, depth=depths, snapshots=str(call["snapshots"] or "all")
    )
    found = [
        (one.severity.value, one.code, one.what, one.sentence, one.remedy, table.counts[one.code])
        for table in report.tables
        for one in table.findings
    ]
    unseen = [("not looked at", None, one.what, one.why, None, None) for table in report.tables for one in table.unseen]
    return [*found, *unseen]


PROCEDURES: Final[Mapping[str, Procedure]] = {
    "audit": Procedure(
        description="Check whether all of a table is encrypted and intact; no row: it is",
        parameters={"table": "string"},
        optional={"depth": "string", "snapshots": "string"},
        result="severity string not null, code string, what string not null, sentence string not null, remedy string, findings_of_code int",
        run=_audit,
        changes=False,
    ),
}
