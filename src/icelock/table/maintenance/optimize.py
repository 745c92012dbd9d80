"""``table.maintenance.optimize()``: looks at the table's own numbers, says what would be done and why, and does it.

Steps in their order (``table.maintenance.optimize_steps``), each on what those before it left. A step begins only if it is likely to end
within the time that is left: at the speed at which such a step went before in the same call, else at a guess. If a step fails, those after
it that delete (expire, leftovers) do not begin: older snapshots may be what is needed then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from icelock.errors import PolicyError
from icelock.shown import Shown
from icelock.table.maintenance.optimize_policy import OptimizePolicy
from icelock.table.maintenance.optimize_steps import STEPS, Do, Finding, Step, after_search, before_search

if TYPE_CHECKING:
    from icelock.table.maintenance.maintenance_table import MaintenanceTable

Clock = Callable[[], float]
_LEFT: Final = ("failed_files", "left", "failed")  # of results
_OVERHEAD: Final = 1.0  # seconds of a step without any work
_logger = logging.getLogger(__name__)


class Outcome(Enum):
    """What became of a step."""

    DONE = "done"
    IN_PART = "done in part"
    WOULD = "would be done"
    NOTHING = "nothing to do"
    OFF = "switched off"
    NO_TIME = "no time left"
    NOT_BEGUN = "not begun"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OptimizeStep(Shown):
    """One step of one table.

    Args:
        name: ``compact``, ``rewrite-deletes``, ``rewrite-manifests``, ``expire``, ``leftovers`` or ``keys``.
        outcome: what became of it.
        found: what the table's numbers say.
        why: why it was done, or was not.
        seconds: how long looking and doing took.
        result: what the step returned, such as ``Compacted``; None if it was not done.
    """

    name: str
    outcome: Outcome
    found: str = ""
    why: str = ""
    seconds: float = 0.0
    result: Any = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Optimized(Shown):
    """What was found in a table and done about it, step by step; with ``dry_run`` what would be done."""

    table: str
    steps: tuple[OptimizeStep, ...]
    seconds: float = 0.0
    dry_run: bool = False

    @property
    def failed(self) -> bool:
        """Whether a step failed, or was done in part."""
        return any(step.outcome in {Outcome.FAILED, Outcome.IN_PART} for step in self.steps)

    @property
    def left(self) -> tuple[str, ...]:
        """Names of the steps for which no time was left."""
        return tuple(step.name for step in self.steps if step.outcome is Outcome.NO_TIME)


@dataclass(slots=True, kw_only=True)
class Budget:
    """The time of a call, and how fast its steps went so far; ``clock`` tells seconds."""

    within: timedelta | None = None
    clock: Clock = time.monotonic
    end: float | None = field(default=None, init=False)
    _speeds: dict[str, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.within is not None:
            if not isinstance(self.within, timedelta):
                raise PolicyError(f"within is {self.within!r}; it must be a timedelta, such as timedelta(hours=2)")
            if self.within <= timedelta():
                raise PolicyError(f"within is {self.within}; it must be above 0")
            self.end = self.clock() + self.within.total_seconds()

    @property
    def left(self) -> float | None:
        """Seconds that are left; None: without end."""
        return None if self.end is None else self.end - self.clock()

    def needs(self, step: Step, work: int) -> float:
        """Return the seconds that so much work of a step is likely to take."""
        return _OVERHEAD + work / self._speeds.get(step.name, step.speed)

    def measured(self, step: Step, work: int, seconds: float) -> None:
        """Take the speed of a step that was done."""
        if work and seconds > _OVERHEAD:
            self._speeds[step.name] = work / seconds


def optimize(
    maintenance: MaintenanceTable, policy: OptimizePolicy, budget: Budget, *, dry_run: bool, told: Callable[[OptimizeStep], None] | None
) -> Optimized:
    """Optimize one table; arguments and errors are those of ``MaintenanceTable.optimize``."""
    start = budget.clock()
    steps: list[OptimizeStep] = []
    for step in STEPS:
        failed = any(done.outcome is Outcome.FAILED for done in steps)
        begin = budget.clock()
        done = _Run(maintenance, policy, budget, dry_run=dry_run).of(step, failed=failed)
        steps.append(replace(done, seconds=budget.clock() - begin))
        if told is not None:
            told(steps[-1])
    name = ".".join(maintenance.tbl.name())
    return Optimized(table=name, steps=tuple(steps), seconds=budget.clock() - start, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class _Run:
    """What all steps of a table share."""

    maintenance: MaintenanceTable
    policy: OptimizePolicy
    budget: Budget
    dry_run: bool = field(kw_only=True)

    def of(self, step: Step, *, failed: bool) -> OptimizeStep:
        """Look, and do what is due; errors become the outcome."""
        if step.name in self.policy.off:
            return OptimizeStep(name=step.name, outcome=Outcome.OFF, why=f"icelock.optimize.{step.name} is false")
        if failed and step.deletes:
            why = "a step before it failed, so nothing is deleted"
            return OptimizeStep(name=step.name, outcome=Outcome.NOT_BEGUN, why=why)
        if (left := self.budget.left) is not None and left <= 0:
            return OptimizeStep(name=step.name, outcome=Outcome.NO_TIME, why="the time is over; not looked at")
        try:
            return self._look_and_do(step)
        except Exception as e:
            _logger.debug("table %s: step %s failed", ".".join(self.maintenance.tbl.name()), step.name, exc_info=e)
            return OptimizeStep(name=step.name, outcome=Outcome.FAILED, why=f"{type(e).__name__}: {' '.join(str(e).split())}")

    def _look_and_do(self, step: Step) -> OptimizeStep:
        self.maintenance.tbl.refresh()
        if step.rows and self.maintenance.tbl.metadata.current_snapshot() is None:
            return OptimizeStep(name=step.name, outcome=Outcome.NOTHING, found="no snapshot", why="the table has no rows yet")
        later = step.searches and not self.dry_run
        finding = before_search(self.maintenance) if later else step.look(self.maintenance, self.policy)
        planned = OptimizeStep(name=step.name, outcome=Outcome.NOTHING, found=finding.found, why=finding.why)
        if not finding.due or step.do is None:
            return planned
        needs, left = self.budget.needs(step, finding.work), self.budget.left
        if left is not None and needs > left:
            why = f"{finding.why}; it would take about {needs:.0f} s, and {max(0, left):.0f} s are left".lstrip("; ")
            return replace(planned, outcome=Outcome.NO_TIME, why=why)
        if self.dry_run:
            return replace(planned, outcome=Outcome.WOULD)
        return self._done(step, step.do, finding, planned)

    def _done(self, step: Step, do: Do, finding: Finding, planned: OptimizeStep) -> OptimizeStep:
        begin = self.budget.clock()
        result = do(self.maintenance, self.policy, finding)
        self.budget.measured(step, finding.work, self.budget.clock() - begin)
        if step.searches:
            finding = after_search(result, self.policy)
        touched = getattr(result, "conflicted_files", 0)
        why = f"{finding.why}; {touched} files stay, since other writers touched them each time" if touched else finding.why
        done = Outcome.DONE if finding.due else Outcome.NOTHING
        outcome = Outcome.IN_PART if any(getattr(result, name, None) for name in _LEFT) else done
        return replace(planned, outcome=outcome, found=finding.found, why=why, result=result)
