"""``optimize_tables``: the upkeep of one table, of those of a namespace, or of all of a catalog, one after another.

Not here: what is done to a table (``table.maintenance.optimize``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from pyiceberg.exceptions import NoSuchTableError

from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.tables_below import tables_below
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

    Tables come in the order of their names. One that fails does not stop the others: see ``Optimized.failed``. Plain tables are left as
    they are, and so said.

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
    OptimizePolicy.of({}, options)
    budget = Budget(within=within, clock=clock)
    tables = sorted(tables_below(catalog, name, is_table=catalog.table_exists))
    return tuple(_optimized(catalog, table, options, budget, dry_run=dry_run, told=told) for table in tables)


def _optimized(  # noqa: PLR0913 - what all tables share
    catalog: EncryptedCatalog, name: str, options: Mapping[str, str] | None, budget: Budget, *, dry_run: bool, told: Told | None
) -> Optimized:
    def tell(step: OptimizeStep) -> None:
        if told is not None:
            told(name, step)

    def not_begun(outcome: Outcome, why: str) -> Optimized:
        step = OptimizeStep(name="load", outcome=outcome, why=why)
        tell(step)
        return Optimized(table=name, steps=(step,), dry_run=dry_run)

    if (left := budget.left) is not None and left <= 0:
        return not_begun(Outcome.NO_TIME, "the time is over; not looked at")
    try:
        table = catalog.load_table(name)
        if not isinstance(table, Table):
            return not_begun(Outcome.NOT_BEGUN, "the table is plain: use the tools for plain tables")
        table.io_for(table.metadata)
        policy = OptimizePolicy.of(table.metadata.properties, options)
    except NoSuchTableError:
        return not_begun(Outcome.NOT_BEGUN, "the table was dropped meanwhile")
    except Exception as e:  # noqa: BLE001 - whatever it is, the other tables go on, and it is said
        return not_begun(Outcome.FAILED, f"{type(e).__name__}: {' '.join(str(e).split())}")
    return optimize(table.maintenance, policy, budget, dry_run=dry_run, told=tell)
