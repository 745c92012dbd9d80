"""Spark looks for Python data sources (modules ``pyspark_*``) by processes when it is first asked about one; without any it need not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from icelock.spark.jvm import data_sources
from tests.helpers.spark import spark_environment

SESSION = """
import os
import icelock.spark
from tests.helpers.spark import session
spark = session({})
known = getattr(getattr(spark._jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager$"), "MODULE$")
assert known.dataSourceBuilders().isEmpty()
icelock.spark.register(spark)
print(known.dataSourceBuilders().get().size())
if os.path.exists("pyspark_other.py"):
    print(spark.read.format("other").load().collect()[0].n)
try:
    spark.read.format("icelock").load()
except Exception as e:
    print(type(e).__name__)
spark.stop()
"""
OTHER = """
import os
from pyspark.sql.datasource import DataSource, DataSourceReader
with open("searched", "w") as file:
    file.write(str(os.getpid()))
class Reader(DataSourceReader):
    def read(self, partition):
        yield (42,)
class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "other"
    def schema(self):
        return "n int"
    def reader(self, schema):
        return Reader()
"""


@pytest.mark.spark
@pytest.mark.spark43
@pytest.mark.parametrize("there", [False, True])
def test_other_data_sources_are_found_and_without_any_no_process_looks(tmp_path: Path, *, there: bool) -> None:
    """What looks, and only that, imports sitecustomize in a process with the worker's name."""
    if there:
        (tmp_path / "pyspark_other.py").write_text(OTHER)
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(
        "import sys\nif any('lookup_data_sources' in word for word in sys.orig_argv): open('looked', 'w').close()\n"
    )
    environment = {**os.environ, **spark_environment(tmp_path / "path")}
    command = [sys.executable, "-c", SESSION]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*(["1", "42"] if there else ["0"]), "PolicyError"]
    assert (tmp_path / "looked").exists() == there


class Jvm:
    """A JVM that has not looked yet, with another Python than this one, or with nothing of this name."""

    def __init__(self, python: str) -> None:
        self.told: list[object] = []
        manager = {"dataSourceBuilders": lambda: SimpleNamespace(isEmpty=lambda: True), "dataSourceBuilders_$eq": self.told.append}
        sources = scala(DataSourceManager=SimpleNamespace(**manager))
        pythons = scala(PythonUtils=SimpleNamespace(defaultPythonExec=lambda: python))
        maps = scala(Map=SimpleNamespace(empty=lambda: "nothing"))
        spark = SimpleNamespace(sql=SimpleNamespace(execution=SimpleNamespace(datasources=sources)), api=SimpleNamespace(python=pythons))
        self.org = SimpleNamespace(apache=SimpleNamespace(spark=spark))
        self.scala = SimpleNamespace(collection=SimpleNamespace(immutable=maps), Option=SimpleNamespace(apply=lambda found: found))


def scala(**objects: object) -> SimpleNamespace:
    return SimpleNamespace(**{f"{name}$": SimpleNamespace(**{"MODULE$": found}) for name, found in objects.items()})


def test_another_python_is_left_to_look(tmp_path: Path) -> None:
    """Another environment has links to the same interpreter."""
    (tmp_path / "python").symlink_to(Path(sys.executable).resolve())
    for python, told in ((sys.executable, ["nothing"]), (str(tmp_path / "python"), []), ("no-such-python", [])):
        jvm = Jvm(python)
        data_sources.spare_search(SimpleNamespace(_jvm=jvm))  # type: ignore[arg-type]
        assert jvm.told == told


def test_modules_on_the_way_of_spark_s_python_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", str(tmp_path)]))
    jvm = Jvm(sys.executable)
    (tmp_path / "pyspark_here").mkdir()
    (tmp_path / "pyspark_here" / "__init__.py").touch()
    data_sources.spare_search(SimpleNamespace(_jvm=jvm))  # type: ignore[arg-type]
    assert jvm.told == []


def test_a_spark_without_this_is_left_alone() -> None:
    data_sources.spare_search(SimpleNamespace(_jvm=SimpleNamespace()))  # type: ignore[arg-type]
