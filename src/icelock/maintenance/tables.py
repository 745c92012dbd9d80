"""``optimize_tables``: the upkeep of one table, of those of a namespace, or of all of a catalog, one after another.

Not here: what is done to a table (``table.maintenance.optimize``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from random import SystemRandom

from pyiceberg.exceptions import NoSuchTableError

from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.tables_below import tables_below
from icelock.table.maintenance.maintenance_table import MaintenanceTable
from icelock.table.maintenance.optimize import Budget, Clock, Optimized, OptimizeStep, Outcome, optimize
from icelock.table.maintenance.optimize_policy import OptimizePolicy
from icelock.table.table import Table

Told = Callable[[str, OptimizeStep], None]


def optimize_tables(  # noqa: PLR0913 - keywords, as those of a table
    catalog: EncryptedCatalog,
    name: str = "",
    *,
    within: timedelta | None = None,
    options: Mapping[str, str] | None = None,
    dry_run: bool = False,
    told: Told | None = None,
    clock: Clock = time.monotonic,
) -> tuple[Optimized, ...]:
    """Optimize the table of a name, or all tables of the namespace and those below it; without a name all of the catalog.

    Tables come in the order of their names; with ``within`` in one that is drawn by lot, so that each is reached some night. One that fails
    does not stop the others: see ``Optimized.failed``. Plain tables are left as they are, and so said.

    Args:
        catalog: where they are.
        name: of a table or namespace, with dots.
        within: for all together: no step begins that is not likely to end in this time.
        options: see ``table.maintenance.optimize``.
        dry_run: only say what would be done.
        told: called after each step with the table's name.
        clock: seconds, for ``within``.

    Raises:
        PolicyError: there is no such table or namespace, or an unknown option; nothing was done.
    """
    upkeep = Upkeep(catalog=catalog, options=options, budget=Budget(within=within, clock=clock), dry_run=dry_run, told=told)
    return upkeep.of(name)


def _here(table: Table) -> MaintenanceTable:
    return table.maintenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """What all tables of a call share; arguments are those of ``optimize_tables``. ``maintenance_of`` says who does a table's work."""

    catalog: EncryptedCatalog
    options: Mapping[str, str] | None
    budget: Budget
    dry_run: bool
    told: Told | None
    maintenance_of: Callable[[Table], MaintenanceTable] = _here

    def of(self, name: str) -> tuple[Optimized, ...]:
        """Optimize the tables of a name; errors are those of ``optimize_tables``."""
        OptimizePolicy.of({}, self.options)
        tables = sorted(tables_below(self.catalog, name, is_table=self.catalog.table_exists))
        if self.budget.left is not None:
            SystemRandom().shuffle(tables)  # in one and the same order the last would never be reached
        return tuple(map(self._optimized, tables))

    def _optimized(self, name: str) -> Optimized:
        def tell(step: OptimizeStep) -> None:
            if self.told is not None:
                self.told(name, step)

        def not_begun(outcome: Outcome, why: str) -> Optimized:
            step = OptimizeStep(name="load", outcome=outcome, why=why)
            tell(step)
            return Optimized(table=name, steps=(step,), dry_run=self.dry_run)

        if (left := self.budget.left) is not None and left <= 0:
            return not_begun(Outcome.NO_TIME, "the time is over; not looked at")
        try:
            table = self.catalog.load_table(name)
            if not isinstance(table, Table):
                return not_begun(Outcome.NOT_BEGUN, "the table is plain: icelock convert makes it an encrypted one")
            table.io_for(table.metadata)
            policy = OptimizePolicy.of(table.metadata.properties, self.options)
        except NoSuchTableError:
            return not_begun(Outcome.NOT_BEGUN, "the table was dropped meanwhile")
        except Exception as e:  # noqa: BLE001 - whatever it is, the other tables go on, and it is said
            return not_begun(Outcome.FAILED, f"{type(e).__name__}: {' '.join(str(e).split())}")
        return optimize(self.maintenance_of(table), policy, self.budget, dry_run=self.dry_run, told=tell)
