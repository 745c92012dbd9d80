"""Writes docs/spark-sql.md from the outcomes of a whole run of the cases: ``make spark-sql-docs``.

The page shows what came of each case on both engines. It is written only when every case ran, on the pinned versions, and came out as its
data says; ``test_sql_page`` holds the page against the cases, ``test_sql`` its rows against what comes out.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.interop.page import ROOT, pinned_versions
from tests.interop.sql_cases import SUITES
from tests.interop.sql_cases.case import ROWS, SNAPSHOTS, STATEMENTS, Case, Suite
from tests.interop.sql_run import Outcome
from tests.interop.toolchain import CACHE, ICEBERG_VERSION
from tools.wrap import wrap

PAGE: Final = ROOT / "docs" / "spark-sql.md"
OUTCOMES: Final = CACHE / "sql-outcomes.json"
_PACKAGES: Final = {"Spark": "pyspark", "pyarrow": "pyarrow", "PyIceberg": "pyiceberg", "icelock": "icelock"}
_PROCEDURE: Final = re.compile(r"system\.(\w+)")
_HEAD: Final = """# Spark SQL on Java Iceberg and on icelock

Written by `make spark-sql-docs` from a run of `tests/interop/test_sql.py`; change the cases in `tests/interop/sql_cases`, not this page.

Behaviours that Iceberg's own Spark suites hold, {total} of them, run on both engines in one Spark session: Java Iceberg's catalog with
plain tables of format version 3, and icelock's with encrypted tables. {same} come out the same; the others are marked, with the reason
below their suite.

Compared are the rows and types of every query and procedure, in any order; of each snapshot the operation and the counts of records
added, removed, in the table, and deleted by position; of errors whether Spark's analysis or run time says them, with Spark's condition,
or the engine refuses. What icelock refused changed nothing.

| | version |
| --- | --- |
{versions}

In the tables: how many rows the first query after the statement finds; of each snapshot that the statement made its operation, the records
added (+), removed (-) and deleted by position (x), and the total; the classes of errors.
"""


def key(suite: Suite, case: Case) -> str:
    """Return what names a case in outcomes and in tests."""
    return f"{suite.name.partition(',')[0]}: {case.title} ({case.of})"


def row(case: Case, java: Outcome, ours: Outcome, number: int | None = None) -> str:
    """Return a case's row of the page; ``number`` is that of its note, if the engines differ."""
    there, here = _shown(java), _shown(ours)
    said = f"{here if here != there else 'other values'} ({number})" if case.difference else "same"
    procedures = _PROCEDURE.findall(" ".join(given for given in case.instead if isinstance(given, str)))
    ways = [f"`CALL {name}`" for name in dict.fromkeys(procedures)] or ["other options"] * bool(case.instead)
    said = ", by ".join([said, *ways])
    return f"| {case.title} | {there} | {said} |"


def _shown(outcome: Outcome) -> str:
    errors = [item for part in (STATEMENTS, ROWS) for item in outcome[part] if isinstance(item, dict)]
    said = [_counted(found) for found in outcome[ROWS][:1]]
    said += [_change(*snapshot) for snapshot in outcome[SNAPSHOTS]]
    said += list(dict.fromkeys(f"`{item['class']}`{', changed' if item.get('changed') else ''}" for item in errors))
    answers = [item for item in outcome[STATEMENTS] if isinstance(item, list) and item]
    said += [f"answers {_number(sum(len(answer) - 1 for answer in answers))}"] if answers else []
    return "; ".join(part for part in said if part) or "done"


def _counted(found: Any) -> str:
    """Return how many rows a query found; of an error, or of metadata, nothing."""
    is_query = isinstance(found, list) and found and str(found[0]).startswith("struct<")
    return _number(len(found) - 1) if is_query else ""


def _number(rows: int) -> str:
    return f"{rows} row{'' if rows == 1 else 's'}"


def _change(operation: str, added: int, removed: int, total: int, by_position: int) -> str:
    signs = ((added, "+"), (removed, "-"), (by_position, "x"))
    return f"{operation} {' '.join(f'{sign}{count}' for count, sign in signs if count)} = {total}".replace("  ", " ")


def render(found: Mapping[str, Mapping[str, Outcome]], versions: Mapping[str, str]) -> str:
    """Return the page."""
    cases = [case for suite in SUITES for case in suite.expanded()]
    head = _HEAD.format(
        total=len(cases),
        same=sum(case.difference is None for case in cases),
        versions="\n".join(f"| {name} | {number} |" for name, number in versions.items()),
    )
    return wrap(head + "".join(_section(suite, found) for suite in SUITES))


def _section(suite: Suite, found: Mapping[str, Mapping[str, Outcome]]) -> str:
    cases = list(suite.expanded())
    numbers = notes(cases)
    rows = [row(case, found[key(suite, case)]["java"], found[key(suite, case)]["icelock"], numbers.get(_why(case))) for case in cases]
    listed = "".join(f"{number}. {why}\n" for why, number in numbers.items())
    return "\n".join([f"\n## {suite.name}\n", "| case | Java | icelock |", "| --- | --- | --- |", *rows, ""]) + (
        f"\n{listed}" if listed else ""
    )


def notes(cases: Iterable[Case]) -> dict[str, int]:
    """Return the reasons of a suite's differences, numbered."""
    found: dict[str, int] = {}
    for case in cases:
        if case.difference:
            found.setdefault(case.difference.why, len(found) + 1)
    return found


def _why(case: Case) -> str:
    return case.difference.why if case.difference else ""


def written_rows() -> list[str]:
    """Return the rows of the committed page's tables of cases."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("| ") and line.count("|") == 4 and not line.startswith(("| ---", "| case |"))]


def versions() -> dict[str, str]:
    """Return the versions that a run depends on."""
    return {
        "Java Iceberg": ICEBERG_VERSION,
        **{name: version(package) for name, package in _PACKAGES.items()},
        "Python": platform.python_version(),
    }


def pinned() -> dict[str, str]:
    """Return the versions of make's environment that the page is about."""
    return {name: number for name, number in pinned_versions().items() if name in {"Java Iceberg", *_PACKAGES}}


def save(cases: Mapping[str, Any]) -> None:
    """Write the outcomes of a run; those of earlier runs on the same versions are kept."""
    known = json.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}
    before = known["cases"] if known.get("versions") == versions() else {}
    OUTCOMES.parent.mkdir(parents=True, exist_ok=True)
    OUTCOMES.write_text(json.dumps({"versions": versions(), "cases": {**before, **cases}}, indent=1, ensure_ascii=False))


def faults(found: Mapping[str, Any]) -> list[str]:
    """Return what keeps outcomes from being the page: other versions, cases that did not run or came out otherwise than they say."""
    said = [
        f"{name} is {found['versions'].get(name)}, pinned is {pin}" for name, pin in pinned().items() if found["versions"].get(name) != pin
    ]
    for suite in SUITES:
        for case in suite.expanded():
            outcome = found["cases"].get(key(suite, case))
            wanted = list(case.difference.parts) if case.difference else []
            if outcome is None:
                said.append(f"{key(suite, case)}: did not run")
            elif outcome["differs"] != wanted:
                said.append(f"{key(suite, case)}: differs in {outcome['differs']}, not {wanted}")
    return said


def main() -> int:
    """Write the page, or say why not."""
    found = json.loads(Path(OUTCOMES).read_text())
    wrong = faults(found)
    if wrong:
        print("docs/spark-sql.md was not written:", *wrong, sep="\n", file=sys.stderr)
        return 1
    PAGE.write_text(render(found["cases"], pinned()), encoding="utf-8")
    print(f"{PAGE} written: {sum(len(list(suite.expanded())) for suite in SUITES)} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
