"""Work on whole tables: converting them; leftovers, and removing them; the audit; upkeep of all tables of a namespace or catalog."""

from icelock.audit.report import AuditReport
from icelock.audit.run import audit
from icelock.maintenance.plain_removal import RemovedPlain, remove_plain
from icelock.maintenance.tables import optimize_tables
from icelock.table.maintenance.conversion.convert import convert
from icelock.table.maintenance.conversion.convert_result import Converted
from icelock.table.maintenance.conversion.undo_conversion import Undone, undo_conversion
from icelock.table.maintenance.optimize import Optimized, OptimizeStep, Outcome
from icelock.table.maintenance.removal.kinds import Content, Kind
from icelock.table.maintenance.removal.leftovers import Leftover, Leftovers, leftovers, remove_leftovers

__all__ = [
    "AuditReport",
    "Content",
    "Converted",
    "Kind",
    "Leftover",
    "Leftovers",
    "OptimizeStep",
    "Optimized",
    "Outcome",
    "RemovedPlain",
    "Undone",
    "audit",
    "convert",
    "leftovers",
    "optimize_tables",
    "remove_leftovers",
    "remove_plain",
    "undo_conversion",
]
