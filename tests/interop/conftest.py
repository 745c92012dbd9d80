"""One session of both engines for all modules here; it ends when the last test here has run, before tests that want another JVM.

What came out of the matrix's cells goes to ``.cache/interop/outcomes.json``, from which ``page.py`` writes docs/interop.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.java_side import Java
from tests.interop.matrix import Engines
from tests.interop.our_side import Ours
from tests.interop.outcomes import Outcomes
from tests.interop.session import interop_session
from tests.interop.toolchain import MissingToolError

HERE = Path(__file__).parent
_OPEN: pytest.StashKey[ExitStack] = pytest.StashKey()
_OUTCOMES: pytest.StashKey[Outcomes] = pytest.StashKey()


def pytest_configure(config):
    config.stash[_OPEN] = ExitStack()
    config.stash[_OUTCOMES] = Outcomes()


@pytest.fixture(scope="session")
def engines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engines:
    try:
        session = request.config.stash[_OPEN].enter_context(interop_session(tmp_path_factory.mktemp("interop")))
    except MissingToolError as e:
        pytest.skip(str(e))
    java = Java(session)
    return Engines(session=session, java=java, ours=Ours(session, java))


@pytest.fixture(scope="session")
def new_table() -> Iterator[Callable[[str], str]]:
    """Return a function that makes a new name of a table."""
    counter = iter(range(1_000_000))
    return lambda name: f"{name.replace('-', '_')}_{next(counter)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    cell = item.get_closest_marker("cell")
    if cell is not None and (call.when == "call" or report.outcome != "passed"):
        item.config.stash[_OUTCOMES].add(cell.args[0], cell.args[1], report.outcome)
    return report


@pytest.hookimpl(trylast=True)  # after the fixtures of the last test, which may need the session to clean up
def pytest_runtest_teardown(item, nextitem):
    if nextitem is None or HERE not in nextitem.path.parents:
        item.config.stash[_OPEN].close()


def pytest_sessionfinish(session):
    session.config.stash[_OPEN].close()
    session.config.stash[_OUTCOMES].save()
