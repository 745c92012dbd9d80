"""icelock's Java classes in a session's JVM: compiled by the Janino among Spark's jars, put into jars, and added to the running session.

    rules    optimizer rules that ``register`` installs, and helpers of all classes
    native   the native scan, which executors run: they get both jars, as any jar (``SparkContext.addJar``)

The driver gets both through its context class loader, which executors of a local master share. A JVM has them once, even if another
SparkContext follows in it.

Compiling takes 3 s of CPU, so the jars are kept (``spark.jvm.jars``): the next session with these sources and this Spark takes them.

Not here: what the classes do (``java``).
"""

from __future__ import annotations

import io
import threading
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from icelock.spark.jvm.callbacks import callbacks_of
from icelock.spark.jvm.jars import keep_jar, kept_jar

# Each class may use those before it. The last one tells whether a JVM has them all.
_RULES: Final = ("Plans", "Replacing", "FreshScans", "OwnRows")
_NATIVE: Final = (
    *("Failure", "Callbacks", "PushedFilters", "KeyOfThread", "SizedFile", "S3Files", "ReadErrors", "OpenedFile", "LocalFiles"),
    *("QuietLogs", "DeletedPositions", "LiveColumn", "PositionColumn"),
    *(
        "LiveRows",
        "FunctionFilters",
        "MixedFilters",
        "PlannedFiles",
        "KeyedReader",
        "SafeFilters",
        "KeyedParquet",
        "NativeScan",
        "ColumnFunctions",
    ),
    *(
        "CountedRows",
        "SqlTables",
        "PythonProcess",
        "TableStream",
        "StreamOffsets",
        "SparkWrites",
        "SparkTable",
        "CachedTables",
        "SparkProcedure",
        "CatalogFunctions",
        "SparkCatalog",
        "DefaultSource",
    ),
    *("TableRelations", "StreamCommand", "TableCommands", "DeletedRows", "RangeOf"),
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
        if not are_loaded(spark):
            for jar in jars:
                context._jsc.addJar(jar)
            callbacks_of(spark).forget()  # targets of a SparkContext that was stopped
            setattr(context, _ADDED, jars)
    return jvm.icelock


def are_loaded(spark: SparkSession) -> bool:
    """Whether a classic session's SparkContext has all classes."""
    return getattr(spark.sparkContext, _ADDED, None) is not None


def _load(jvm: Any, name: str, sources: tuple[str, ...]) -> str:
    """Return the jar of some classes, which the JVM has from then on."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        known = loader.loadClass(f"icelock.{sources[-1]}")
    except Exception:
        folder = files("icelock.spark.jvm").joinpath("java")
        texts = [folder.joinpath(f"{source}.java").read_text(encoding="utf-8") for source in sources]
        # Janino's output depends on the classes that it compiles against.
        of = [str(jvm.org.apache.spark.package.SPARK_REVISION()), str(jvm.java.lang.System.getProperty("java.version")), *texts]
        jar = kept_jar(f"icelock-{name}", of)
        if jar is None:
            made = _compile(jvm, loader, texts)
            jar = keep_jar(f"icelock-{name}", of, made) or _temporary(jvm, name, made)
        loader.addURL(jvm.java.io.File(jar).toURI().toURL())
        return jar
    return str(known.getProtectionDomain().getCodeSource().getLocation().getPath())


def _compile(jvm: Any, loader: Any, sources: list[str]) -> bytes:
    """Return a jar of compiled classes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as jar:
        for source in sources:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(loader)
            compiler.setSourceVersion(8)  # without it Janino refuses calls of static methods of interfaces
            compiler.setTargetVersion(8)
            compiler.cook(source)
            loader = compiler.getClassLoader()
            compiled = compiler.getBytecodes()
            for name_in_jar in compiled:
                jar.writestr(f"{name_in_jar.replace('.', '/')}.class", compiled[name_in_jar])
    return made.getvalue()


def _temporary(jvm: Any, name: str, jar: bytes) -> str:
    """Return the path of a jar in a directory that the JVM removes at its end."""
    path = Path(jvm.org.apache.spark.util.Utils.createTempDir().getPath()) / f"icelock-{name}.jar"
    path.write_bytes(jar)
    return str(path)
