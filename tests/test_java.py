"""The Java files compile by javac without a warning, against the jars of the installed PySpark: Janino, in a session, accepts more.

``path`` and ``classfile`` are about those jars, which name others that Spark does not have.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest

from icelock.spark.jvm import classes
from tests.helpers.class_archive import QUICK_START

SOURCES = sorted((Path(classes.__file__).parent / "java").glob("*.java"))
JARS = Path(pyspark.__file__).parent / "jars"


@pytest.mark.spark43(daily=True)
def test_javac_has_no_warning(tmp_path):
    home = os.environ.get("JAVA_HOME")
    javac = shutil.which("javac", path=f"{home}/bin" if home else None)
    if javac is None:
        pytest.fail("no javac: install a JDK 17 or 21, on Debian with apt-get install openjdk-17-jdk-headless")
    quick = tuple(f"-J{option}" for option in QUICK_START.split())  # it runs for seconds
    lint = ("-Xlint:all,-path,-classfile", "-Werror", "-proc:none", "--release", "17")
    done = subprocess.run([javac, *quick, *lint, "-cp", f"{JARS}/*", "-d", tmp_path, *SOURCES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_class_is_loaded():
    loaded = [f"{name}.java" for name in (*classes._RULES, *classes._NATIVE)]
    assert sorted([*loaded, "package-info.java"]) == [path.name for path in SOURCES]
