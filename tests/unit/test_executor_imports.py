"""What a Spark task imports to unpickle its reader or writer: no catalog, no KMS, no key manager, no planning, nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

import icelock.spark

# Modules whose classes Spark pickles for its tasks.
PICKLED = ("write", "read", "row_rewrite", "splits", "write_plain", "list_files", "copy_files", "read_changes")
OF_THE_DRIVER = {
    f"icelock.spark.{name}"
    for name in ("read_table", "change_rows", "session", "sql_tables", "table_writer", "driver", "native", "jvm", "settings.catalogs")
}
HEAVY = {"pandas", "polars", "pyarrow.dataset", "pyiceberg.table", "pyiceberg.catalog", "sqlalchemy", "requests"}


def imported(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", PICKLED)
def test_a_task_unpickles_its_class_without_the_drivers_modules(module):
    loaded = imported(f"import icelock.spark.task.{module}")
    ours = {name for name in loaded if name.startswith("icelock.")}
    assert not {name for name in ours if name.split(".")[1] in ("catalog", "kms", "keys", "table", "maintenance", "cli")}
    assert not (OF_THE_DRIVER | HEAVY) & loaded
    assert len(ours) <= 23, sorted(ours)  # those of row_rewrite, with the opening of sealed splits and the counters


def test_a_process_of_an_audit_imports_what_opens_files_and_no_more():
    """It begins in a quarter of a second; PyIceberg's files take a second."""
    loaded = imported("import icelock.audit.worker")
    ours = {name.split(".")[1] for name in loaded if name.startswith("icelock.")}
    assert ours == {"_moved", "audit", "errors", "format", "io", "secret"}
    assert not {name for name in loaded if name.split(".")[0] in {"pyiceberg", "pydantic"}}


def test_options_are_read_without_pyicebergs_tables():
    """Planning processes of the data source, and the calling process, read them first of all."""
    assert not HEAVY & imported("import icelock.spark.settings.options")


def test_the_writers_module_brings_four_of_ours_with_it():
    ours = {name for name in imported("import icelock.spark.task.write") if name.startswith("icelock.")}
    assert ours == {
        "icelock._moved",
        "icelock.errors",
        "icelock.spark",
        "icelock.spark.sealed",
        "icelock.spark.sealed.hpke",
        "icelock.spark.sealed.messages",
        "icelock.spark.task",
        "icelock.spark.task.imports",
        "icelock.spark.task.write",
    }


# Each name in a process of its own, which has imported no more than this; forked, as the import takes two seconds of CPU.
FIRST = """
import os, sys
import icelock.spark.table_writer, icelock.spark
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        os._exit(not callable(getattr(icelock.spark, name)))
    print(name, os.waitpid(child, 0)[1], flush=True)
"""


@pytest.fixture(scope="module")
def ends() -> dict[str, str]:
    """How the process ended that asked for a name first: 0 if it found a function."""
    done = subprocess.run([sys.executable, "-c", FIRST, *icelock.spark.__all__], capture_output=True, text=True, check=True)
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", icelock.spark.__all__)
def test_every_name_of_the_package_is_a_function_whatever_was_imported_first(ends: dict[str, str], name):
    assert ends[name] == "0"
    assert name in dir(icelock.spark)


def test_unknown_names_of_the_package_are_attribute_errors():
    with pytest.raises(AttributeError, match=r"'icelock\.spark' has no attribute 'reed'"):
        icelock.spark.reed  # noqa: B018
