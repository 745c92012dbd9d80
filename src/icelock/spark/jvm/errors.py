"""Queries of a classic session raise icelock's errors, whichever method of whichever DataFrame runs them.

PySpark converts the JVM's exceptions in one function, ``pyspark.errors.exceptions.captured.convert_exception``. ``install`` wraps it: the
wrapper looks through the causes of the JVM's exception for

    icelock.Failure             of the native scan: of a file that a task read (``ReadErrors.java``), or of planning in this process, whose
                                own error is then raised
    a Python worker's error     PythonException, and AnalysisException of a data source: the traceback ends with icelock's error

and leaves all other exceptions to PySpark. A subclass of DataFrame would not do, as ``filter`` and others return PySpark's own.

A task's error becomes both an ``IntegrityError`` (or the like) and a ``PySparkException``, so that code for the latter still catches it.

Not here: Spark Connect, whose client has only the server's text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final

from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)

from icelock import errors
from icelock.spark.jvm.callbacks import error_of

_FAILURE: Final = "icelock.Failure"
_OF_WORKERS: Final = "org.apache.spark.api.python.PythonException"
_OF_SOURCES: Final = "PYTHON_DATA_SOURCE_ERROR"
_ANALYSIS: Final = "AnalysisException"
_DEEP: Final = 30
_MARK: Final = "_icelock"
_TRACEBACK: Final = "Traceback (most recent call last):"
# The traceback's line with the error: its class, and a message that may continue on later lines.
_OF_FILES: Final = (FileNotFoundError, PermissionError, FileExistsError, NotADirectoryError, IsADirectoryError, OSError)
_RAISED: Final = re.compile(
    rf"^(?:((?:icelock\.errors|pyiceberg\.exceptions)\.\w+)|({'|'.join(kind.__name__ for kind in _OF_FILES)})): (.*)", re.DOTALL
)
# What storage says, such as that it is full, is our error only if our code asked it; a UDF's error is PySpark's.
_OURS: Final = re.compile(r'^  File "[^"\n]*\bicelock[/\\]', re.MULTILINE)
# What may follow a traceback in the JVM's text.
_AFTER: Final = re.compile(r"\n\s*\n|\n\tat |\n\s*SQLSTATE: |\n\s*\Z")

_KINDS: Final[dict[str, type[Exception]]] = {
    **{f"builtins.{kind.__name__}": kind for kind in _OF_FILES},
    **{
        f"icelock.errors.{kind.__name__}": kind
        for kind in (
            errors.IcelockError,
            errors.FormatError,
            errors.IntegrityError,
            errors.KeyUnavailableError,
            errors.PolicyError,
            errors.CommitError,
        )
    },
    **{
        f"pyiceberg.exceptions.{kind.__name__}": kind
        for kind in (NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError, CommitFailedException, ValidationException)
    },
    # A traceback does not have its own arguments.
    "icelock.errors.KmsError": errors.KeyUnavailableError,
}
# Of an invalid request the message says it all, and a traceback adds nothing.
_REQUESTS: Final = (errors.PolicyError, NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError)
_CAPTURED: Final[dict[type[Exception], Callable[[str], Exception]]] = {}


def install() -> None:
    """Let PySpark raise icelock's errors. Calling it again changes nothing."""
    from pyspark.errors.exceptions import captured

    original: Callable[[Any], Exception] | None = getattr(captured, "convert_exception", None)
    if original is None or hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def convert_exception(e: Any) -> Exception:
        found = error_in(e)
        return original(e) if found is None else found

    setattr(convert_exception, _MARK, True)
    captured.convert_exception = convert_exception  # type: ignore[assignment]


def error_in(error: Any) -> Exception | None:
    """Return icelock's error among the causes of an exception of the JVM, or None; raise one of planning in this process."""
    for _ in range(_DEEP):
        if error is None:
            return None
        name = str(error.getClass().getName())
        if name == _FAILURE:
            planned = error_of(error.number())
            if planned is not None:
                raise planned from planned.__cause__
            return _made(str(error.kind()), str(error.getMessage()))
        if name == _OF_WORKERS or (name.endswith(_ANALYSIS) and _OF_SOURCES in str(error.getCondition())):
            found = in_traceback(str(error.getMessage()))
            if found is not None:
                return found
        error = error.getCause()
    return None


def in_traceback(text: str) -> Exception | None:
    """Return the error that the last traceback in a text ends with, if it is icelock's."""
    _, start, last = text.rpartition(_TRACEBACK)
    lines = last.splitlines(keepends=True)[1:]
    while lines and lines[0][:1].isspace():
        del lines[0]
    raised = _RAISED.match("".join(lines))
    if raised is None or not (raised[1] or _OURS.search(last)):
        return None
    name, message = raised[1] or f"builtins.{raised[2]}", _AFTER.split(raised[3], maxsplit=1)[0].strip()
    if _KINDS.get(name) in _REQUESTS:
        return _made(name, message)
    return _made(name, f"{message}\n\nIn Spark's Python worker:\n{start}{last}".rstrip())


def _made(name: str, message: str) -> Exception | None:
    kind = _KINDS.get(name)
    return None if kind is None else _captured(kind)(message)


def _captured(kind: type[Exception]) -> Callable[[str], Exception]:
    """Return a class of errors that are both of a kind and PySpark's."""
    if kind in _CAPTURED:
        return _CAPTURED[kind]
    from pyspark.errors import PySparkException

    class Captured(kind, PySparkException):  # type: ignore[valid-type, misc]
        def __init__(self, message: str) -> None:
            PySparkException.__init__(self, message=message)
            self.args = (message,)

        def __str__(self) -> str:
            return str(self.args[0])

        def __reduce__(self) -> Any:
            return _again, (kind, *self.args)

    # Tracebacks name it as users know it.
    Captured.__name__ = Captured.__qualname__ = kind.__name__
    Captured.__module__ = kind.__module__
    return _CAPTURED.setdefault(kind, Captured)


def _again(kind: type[Exception], message: str) -> Exception:
    return _captured(kind)(message)
