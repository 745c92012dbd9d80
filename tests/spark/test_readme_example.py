"""README's example for Spark and the snippets of how-to/spark-sql.md, as they stand there.

In the session that all tests here share: what a session of one's own takes is for tests/catalogs/test_spark_job.py and tests/demo.
"""

from __future__ import annotations

import pytest

from tests.test_readme import EXAMPLES, FENCE, ROOT, make_keyring


@pytest.mark.spark
@pytest.mark.newest
def test_spark_example_runs_after_the_first(spark, monkeypatch, capsys):
    """In the folder where Spark's processes are: the example names its files from there."""
    here = spark._jvm.System.getProperty("user.dir")
    monkeypatch.chdir(here)
    make_keyring(here)
    known = {}
    for example in EXAMPLES[:2]:
        exec(compile(example, "README.md", "exec"), known)  # noqa: S102
    printed = capsys.readouterr().out
    assert "4000-4" in printed
    assert "|       4|" in printed  # the rows that the last statement counts
    assert known["spark"] is spark


@pytest.mark.spark
@pytest.mark.newest
def test_the_snippets_of_the_page_on_sql_run_one_after_the_other(spark, monkeypatch, tmp_path):
    """In an empty folder, as a reader would type them; what the rows are afterwards is counted by hand."""
    monkeypatch.chdir(tmp_path)
    make_keyring(tmp_path)
    page = (ROOT / "docs/how-to/spark-sql.md").read_text(encoding="utf-8").replace('"sqlite:///lake.db"', f'"sqlite:///{tmp_path}/lake.db"')
    page = page.replace('"keyring.', f'"{tmp_path}/keyring.')  # Spark's processes are in another folder
    known = {}
    for example in (code for language, code in FENCE.findall(page) if language == "python"):
        exec(compile(example, "spark-sql.md", "exec"), known)  # noqa: S102
    done = known["done"]
    # Row 1 is 'gone', row 2 is new; later row 7 comes by way of the plain table, which is made empty: no id is above 100.
    assert (done.rows_deleted, done.rows_updated, done.rows_inserted) == (1, 0, 1)
    rows = spark.sql("select id, cast(total as string) from lake.shop.sales order by id").collect()
    assert [tuple(row) for row in rows] == [(2, "5.00"), (7, "1.50")]
