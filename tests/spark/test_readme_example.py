"""README's example for Spark, as it stands there, after the first one.

In the session that all tests here share: what a session of one's own takes is for tests/catalogs/test_spark_job.py and tests/demo.
"""

from __future__ import annotations

import pytest

from tests.test_readme import EXAMPLES, make_keyring


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
