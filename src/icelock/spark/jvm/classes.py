"""icelock's Java classes in a session's JVM: compiled by the Janino among Spark's jars, put into jars, and added to the running session.

    rules    optimizer rules that ``register`` installs, and helpers of all classes
    native   the native scan, which executors run: they get both jars, as any jar (``SparkContext.addJar``)

The driver gets both through its context class loader, which executors of a local master share. A JVM compiles them once, even if another
SparkContext follows in it.

Not here: what the classes do (``java``).
"""

from __future__ import annotations

import threading
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from icelock.spark.jvm.callbacks import callbacks_of

# Each class may use those before it. The last one tells whether a JVM has them all.
_RULES: Final = ("Plans", "Replacing", "FreshScans", "OwnRows")
_NATIVE: Final = (
    *("Failure", "Callbacks", "PushedFilters", "ReadErrors", "OpenedFile", "LocalFiles", "QuietLogs", "DeletedPositions", "LiveColumn"),
    *("LiveRows", "KeyOfThread", "PlannedFiles", "KeyedReader", "SafeFilters", "KeyedParquet", "NativeScan", "ColumnFunctions"),
    *("CountedRows", "SqlTables"),
)
_ADDED: Final = "_icelock_jars"
_LOCK: Final = threading.Lock()


def load_rules(spark: SparkSession) -> Any:
    """Return the package ``icelock`` of a classic session's JVM, with the optimizer rules in it, which only the driver gets."""
    jvm: Any = spark._jvm
    with _LOCK:
        _load(jvm, "rules", _RULES)
    return jvm.icelock


def load_native(spark: SparkSession) -> Any:
    """Return the package ``icelock`` of a classic session's JVM, with all classes; executors get them too."""
    context: Any = spark.sparkContext
    jvm: Any = spark._jvm
    with _LOCK:
        jars = [_load(jvm, "rules", _RULES), _load(jvm, "native", _NATIVE)]
        if getattr(context, _ADDED, None) is None:
            for jar in jars:
                context._jsc.addJar(jar)
            callbacks_of(spark).forget()  # targets of a SparkContext that was stopped
            setattr(context, _ADDED, jars)
    return jvm.icelock


def _load(jvm: Any, name: str, sources: tuple[str, ...]) -> str:
    """Return the jar of some classes; the JVM's first call compiles them."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        known = loader.loadClass(f"icelock.{sources[-1]}")
    except Exception:
        jar = _compile(jvm, loader, name, sources)
        loader.addURL(jvm.java.io.File(jar).toURI().toURL())
        return jar
    return str(known.getProtectionDomain().getCodeSource().getLocation().getPath())


def _compile(jvm: Any, loader: Any, name: str, sources: tuple[str, ...]) -> str:
    """Compile classes into a jar in a directory that the JVM removes at its end."""
    path = Path(jvm.org.apache.spark.util.Utils.createTempDir().getPath()) / f"icelock-{name}.jar"
    with zipfile.ZipFile(path, "w") as jar:
        for source in sources:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(loader)
            compiler.cook(files("icelock.spark.jvm").joinpath("java", f"{source}.java").read_text(encoding="utf-8"))
            loader = compiler.getClassLoader()
            compiled = compiler.getBytecodes()
            for name_in_jar in compiled:
                jar.writestr(f"{name_in_jar.replace('.', '/')}.class", compiled[name_in_jar])
    return str(path)
