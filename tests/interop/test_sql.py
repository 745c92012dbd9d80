"""Each case of ``sql_cases`` on Java Iceberg and on icelock: the same, or the difference that the case names.

``ICELOCK_SQL_CASES=all`` runs every case, for docs/spark-sql.md, and so does ``ICELOCK_SWEEPS=all``; otherwise one of twenty runs, others
each day.
"""

from __future__ import annotations

import os

import pytest

from tests.helpers import turns
from tests.interop import sql_page
from tests.interop.sql_cases import SUITES
from tests.interop.sql_run import differing, run, sides

pytestmark = [pytest.mark.spark, pytest.mark.hive, pytest.mark.slow]

# A case takes 1 s of CPU on both engines.
_EVERY = 20
WHOLE = turns.WHOLE or os.environ.get("ICELOCK_SQL_CASES") == "all"
CASES = [(sql_page.key(suite, case), suite, case) for suite in SUITES for case in suite.expanded()]
TODAY = range(len(CASES)) if WHOLE else turns.in_turn("SQL cases", len(CASES), _EVERY)
CHOSEN = [pytest.param(i, *CASES[i], id=CASES[i][0]) for i in TODAY]


@pytest.fixture(scope="module")
def both(engines):
    return sides(engines.session)


@pytest.fixture(scope="module")
def outcomes():
    found: dict[str, object] = {}
    yield found
    sql_page.save(found)


@pytest.mark.parametrize(("number", "key", "suite", "case"), CHOSEN)
def test_both_engines_do_the_same(number, key, suite, case, both, outcomes):
    java, ours = (run(side, case, number) for side in both)
    parts = differing(java, ours)
    outcomes[key] = {"java": java, "icelock": ours, "differs": list(parts)}
    wanted = case.difference.parts if case.difference else ()
    assert parts == wanted, "".join(f"\n{part}\n  Java:    {java[part]}\n  icelock: {ours[part]}" for part in {*parts, *wanted})
    assert not any(item.get("changed") for part in ours.values() for item in part if isinstance(item, dict)), (
        "what failed changed the table"
    )
    if not WHOLE:
        numbers = sql_page.notes(suite.expanded())
        row = sql_page.row(case, java, ours, numbers[case.difference.why] if case.difference else None)
        assert row in sql_page.written_rows(), "run make spark-sql-docs"
