"""docs/spark-sql.md has the cases that there are, with the differences that they name, on the pinned versions."""

from __future__ import annotations

from tests.interop import sql_page
from tests.interop.sql_cases import SUITES
from tests.interop.sql_cases.case import Case, Differs
from tests.interop.sql_run import differing


def test_the_committed_page_has_every_case_with_its_difference():
    rows = iter(sql_page.written_rows())
    for suite in SUITES:
        numbers = sql_page.notes(suite.expanded())
        for case in suite.expanded():
            title, _, ours = next(rows).removeprefix("| ").removesuffix(" |").split(" | ")
            assert title == case.title, "run make spark-sql-docs"
            said = ours.partition(", by ")[0]
            assert said.endswith(f"({numbers[case.difference.why]})") if case.difference else said == "same", case.title
    assert list(rows) == []


def test_the_committed_page_gives_the_reasons_and_the_pinned_versions():
    text = sql_page.PAGE.read_text(encoding="utf-8")
    for suite in SUITES:
        section = text.partition(f"\n## {suite.name}\n")[2].partition("\n## ")[0].replace("\n   ", " ")
        for why, number in sql_page.notes(suite.expanded()).items():
            assert f"\n{number}. {why}\n" in section
    for name, number in sql_page.pinned().items():
        assert f"| {name} | {number} |\n" in text


def test_names_of_cases_are_unique():
    keys = [sql_page.key(suite, case) for suite in SUITES for case in suite.expanded()]
    assert len(set(keys)) == len(keys)


def test_a_case_that_did_not_run_or_came_out_otherwise_is_told():
    cases = {
        sql_page.key(suite, case): {"differs": list(case.difference.parts) if case.difference else []}
        for suite in SUITES
        for case in suite.expanded()
    }
    assert sql_page.faults({"versions": sql_page.pinned(), "cases": cases}) == []
    first, second, *_ = cases
    cases[first] = {"differs": ["rows"]}
    del cases[second]
    said = sql_page.faults({"versions": {**sql_page.pinned(), "Spark": "1.0"}, "cases": cases})
    assert [line.partition(" is ")[0] for line in said[:1]] == ["Spark"]
    assert [said[1].startswith(first), said[2]] == [True, f"{second}: did not run"]


CHANGED = {"statements": [[]], "rows": [["struct<id:int>", "[1]"]], "snapshots": [["overwrite", 1, 2, 3, 0]]}
REFUSED = {"statements": [{"kind": "refused", "class": "PolicyError", "message": "no"}], "rows": [["struct<id:int>"]], "snapshots": []}


def test_a_row_has_what_came_of_the_case_on_both_sides():
    case = Case("a title", "aTest", ())
    assert sql_page.row(case, CHANGED, CHANGED) == "| a title | 1 row; overwrite +1 -2 = 3 | same |"
    differs = Case("a title", "aTest", (), differs=Differs("a reason"))
    assert sql_page.row(differs, CHANGED, REFUSED, 4) == "| a title | 1 row; overwrite +1 -2 = 3 | 0 rows; `PolicyError` (4) |"
    instead = Case("a title", "aTest", (), instead=("call {cat}.system.create_tag('{id}', 'x')",))
    assert sql_page.row(instead, CHANGED, CHANGED).endswith("| same, by `CALL create_tag` |")


def test_outcomes_differ_by_rows_counts_and_kinds_of_errors():
    assert differing(CHANGED, CHANGED) == ()
    assert differing(CHANGED, REFUSED) == ("statements", "rows", "snapshots")
    java = {**REFUSED, "statements": [{"kind": "refused", "class": "ValidationException", "message": "another"}]}
    assert differing(java, REFUSED) == ()
    assert differing(java, {**REFUSED, "statements": [{**REFUSED["statements"][0], "changed": True}]}) == ("statements",)
    assert differing(java, {**REFUSED, "statements": [{"kind": "analysis TABLE_OR_VIEW_NOT_FOUND"}]}) == ("statements",)
