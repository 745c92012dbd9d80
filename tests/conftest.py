"""What every test shares. Fixtures stand beside the tests that use them; here are the servers that several folders use.

With ``ICELOCK_NO_SKIP=1`` (CI) a skipped test is a failed one, so that nothing drops out of the suite unnoticed.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers.class_archive import java_options
from tests.helpers.places import use_memory
from tests.helpers.turns import costly, costly_of_today, of_today

if TYPE_CHECKING:
    from tests.servers.metastore import Metastore
    from tests.servers.postgres import Postgres
    from tests.servers.rest import RestServer

# Spark's workers run "python3" of PATH unless told otherwise; the tests may run in an environment that is not on PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("JDK_JAVA_OPTIONS", java_options())
use_memory()

# Other tests run beside this one: how long an example takes says nothing.
settings.register_profile("icelock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("icelock")

# Objects that a test makes and leaves are few; Python's collector would look for them every 700 allocations.
_ALLOCATIONS = 50_000

NO_SKIP = os.environ.get("ICELOCK_NO_SKIP") == "1"


_told = pytest.StashKey[str]()


def pytest_addoption(parser):
    parser.addoption("--weekly", action="store_true", help="run a seventh of each sweep and of tests/costly.tsv, another one each day")


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config, items):
    """Deselect the cells of sweeps whose turn is another day."""
    second = "spark43" in config.option.markexpr
    chosen = of_today(items, second=second, weekly=config.option.weekly)
    if config.option.weekly:
        chosen = costly_of_today(chosen, costly(), second=second)
    if len(chosen) < len(items):
        config.stash[_told] = f"{len(items) - len(chosen)} of {len(items)} tests wait for their day (tests/helpers/turns.py)"
        config.hook.pytest_deselected(items=[*{*items}.difference(chosen)])
        items[:] = chosen


def pytest_report_collectionfinish(config):
    return config.stash.get(_told, [])


def pytest_collection_finish():
    """Leave what was imported out of garbage collection, and collect less often: that is an eighth of the CPU that a table takes."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, 10, 10)


def _fail_skips(report):
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason} (ICELOCK_NO_SKIP=1: nothing is skipped in CI)"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):  # noqa: ARG001
    return _fail_skips((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):  # noqa: ARG001
    return _fail_skips((yield))


# One server of a kind for the whole run, started when it is first needed: a metastore takes 6 s of CPU to start. Tests keep apart by
# databases and names of their own. Imported here only by those who need them.


@pytest.fixture(scope="session")
def metastore() -> Iterator[Metastore]:
    from tests.servers.metastore import Metastore  # noqa: PLC0415

    with Metastore() as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    from tests.servers.postgres import Postgres  # noqa: PLC0415

    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def rest_server() -> Iterator[RestServer]:
    from tests.servers.rest import RestServer  # noqa: PLC0415

    with RestServer() as server:
        yield server
