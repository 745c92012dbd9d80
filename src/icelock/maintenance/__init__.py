"""Work on whole tables: what is left over, and removing it; and upkeep of all tables of a namespace or catalog."""

from icelock.maintenance.tables import optimize_tables
from icelock.table.maintenance.leftovers import Content, Kind, Leftover, Leftovers, leftovers, remove_leftovers
from icelock.table.maintenance.optimize import Optimized, OptimizeStep, Outcome

__all__ = [
    "Content",
    "Kind",
    "Leftover",
    "Leftovers",
    "OptimizeStep",
    "Optimized",
    "Outcome",
    "leftovers",
    "optimize_tables",
    "remove_leftovers",
]
