"""Work on whole tables: what is left over, and removing it; the audit; and upkeep of all tables of a namespace or catalog."""

from icelock.audit.report import AuditReport
from icelock.audit.run import audit
from icelock.maintenance.tables import optimize_tables
from icelock.table.maintenance.leftovers import Content, Kind, Leftover, Leftovers, leftovers, remove_leftovers
from icelock.table.maintenance.optimize import Optimized, OptimizeStep, Outcome

__all__ = [
    "AuditReport",
    "Content",
    "Kind",
    "Leftover",
    "Leftovers",
    "OptimizeStep",
    "Optimized",
    "Outcome",
    "audit",
    "leftovers",
    "optimize_tables",
    "remove_leftovers",
]
