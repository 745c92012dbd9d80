"""``load_catalog``: which class a configuration means."""

from __future__ import annotations

import subprocess
import sys

import pytest

import icelock
from icelock.catalog.sql.catalog import SqlCatalog
from icelock.errors import PolicyError
from tests.lakes.sqlite import TestLake

SQL = "icelock.catalog.sql.SqlCatalog"


def properties(lake: TestLake, **more: str) -> dict[str, str]:
    return {key: value for key, value in lake.properties().items() if key != "type"} | more


@pytest.mark.parametrize("more", [{}, {"type": "sql"}, {"type": "SQL"}, {"py-catalog-impl": SQL}, {"py-catalog-impl": SQL, "type": "sql"}])
def test_sql_by_uri_type_or_class(lake: TestLake, more: dict[str, str]) -> None:
    assert type(icelock.load_catalog("test", **properties(lake, **more))) is SqlCatalog


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"py-catalog-impl": "pyiceberg.catalog.sql.SqlCatalog"}, "not one of icelock's"),
        ({"py-catalog-impl": "icelock.catalog.sql.catalog.NoSuchCatalog"}, "not one of icelock's"),
        ({"py-catalog-impl": "icelock.catalog.hive.HiveCatalog", "type": "sql"}, "do not fit"),
        ({"type": "hdfs"}, "cannot hold encrypted tables in this version; use one of sql"),
    ],
)
def test_classes_and_types_that_are_refused(lake: TestLake, more: dict[str, str], match: str) -> None:
    with pytest.raises(PolicyError, match=match):
        icelock.load_catalog("test", **properties(lake, **more))


def test_a_missing_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['thrift'] = None\nimport icelock\nicelock.load_catalog('lake', type='hive', uri='thrift://127.0.0.1:9083')"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "NotInstalledError: catalog lake needs" in done.stderr
    assert "pip install '.[hive]'" in done.stderr


def test_other_catalogs_do_not_import_thrift(lake: TestLake) -> None:
    code = f"import sys, icelock; icelock.load_catalog('test', **{lake.properties()!r}); print('thrift' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"
