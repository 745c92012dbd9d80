"""What icelock tells of itself while it works: structured log lines, and OpenTelemetry's spans and meter where a program has them.

A line is an event of a layer's logger (``icelock.kms``, ``icelock.table`` ...): its message is logfmt (``event=commit table=db.t``), and
the record has the same fields as attributes, for formatters of JSON. Fields are names, ids, counts and times: never keys, values of rows,
credentials, or the text of an error, which may hold such. docs/how-to/observability.md lists the events.

OpenTelemetry is never imported here: a program that has not imported it has no provider, and pays nothing. Spans have the names and
attributes of its conventions for databases (https://opentelemetry.io/docs/specs/semconv/database/) where these fit; of an error they have
the class alone.

Not here: the counters (``icelock.metrics``).
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from icelock import metrics
from icelock.errors import IcelockError, IntegrityError, KmsError

_T = TypeVar("_T")
_NAME: Final = "icelock"
_SYSTEM: Final = "iceberg"
_BARE: Final = re.compile(r"[\w.:/@+-]+", re.ASCII)
_TOLD: Final = "_icelock_told"
_bridged: Final[list[Any]] = []


def logfmt(given: Mapping[str, object]) -> str:
    r"""Return fields as ``name=value``; what is not plain text is quoted as in JSON, so that a line stays one line.

    >>> print(logfmt({"event": "commit", "table": "db.my table", "note": "a\nb"}))
    event=commit table="db.my table" note="a\nb"
    """
    return " ".join(f"{name}={_quoted(value)}" for name, value in given.items() if value is not None)


def _quoted(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text)


def event(layer: str, level: int, name: str, **given: object) -> None:
    """Log an event of a layer; fields that are None are left out."""
    logger = logging.getLogger(f"{_NAME}.{layer}")
    if logger.isEnabledFor(level):
        told = {"event": name, **_given(given)}
        logger.log(level, "%s", logfmt(told), extra=told, stacklevel=2)


def milliseconds_since(start: float) -> float:
    """Return the milliseconds since a reading of ``time.perf_counter``."""
    return round((time.perf_counter() - start) * 1_000, 3)


def fallback(layer: str, level: int, *, what: str, why: str, **given: object) -> None:
    """Count a read or a plan that takes the slower way, and log it: below WARNING, since the rows are the same."""
    metrics.add(fallbacks=1)
    event(layer, level, "fallback", what=what, **given, why=why)


def refused(layer: str, operation: str, target: str | None, error: IcelockError) -> None:
    """Count an operation that an error of icelock's own ended, and log it, unless the error or its cause was told before.

    At WARNING if bytes were changed (IntegrityError), else at INFO, since the caller has the error too.
    """
    seen: BaseException | None = error
    while seen is not None:
        if getattr(seen, _TOLD, False):
            return
        seen = seen.__cause__
    setattr(error, _TOLD, True)
    metrics.add(refusals=1)
    level = logging.WARNING if isinstance(error, IntegrityError) else logging.INFO
    kind = error.kind.name.lower() if isinstance(error, KmsError) else None
    event(layer, level, "refusal", operation=operation, target=target, error=type(error).__name__, kind=kind)


class Operation:
    """A read, plan, commit or call of the key service, as a ``with`` block: a span, and a line if an error of icelock's own ends it.

    Such an error is told once, by the innermost operation that it leaves (``refused``).

    Args:
        layer: whose logger it is.
        name: what is done, ``read``, ``plan``, ``commit``, ``wrap`` or ``unwrap``.
        target: the table, ``namespace.table``, or the key service's client.
        remote: whether another service is called: its span is a client's.
        attributes: of the span; those that are None are left out.
    """

    def __init__(
        self, layer: str, name: str, target: str | None, *, remote: bool = False, attributes: Mapping[str, Any] | None = None
    ) -> None:
        self._layer = layer
        self._name = name
        self._target = target
        self._span: Any = None
        self._current: Any = None
        trace = sys.modules.get("opentelemetry.trace")
        if trace is not None:
            self._begin(trace, remote, dict(attributes or {}))

    def set(self, **attributes: Any) -> None:
        """Add attributes of icelock's own to the span; ``_`` in a name is a dot."""
        if self._span is not None:
            self._span.set_attributes(_given(_ours(attributes)))

    def returned(self, rows: int) -> None:
        """Add the number of rows that were returned to the span."""
        if self._span is not None:
            self._span.set_attribute("db.response.returned_rows", rows)

    def over(self, items: Iterator[_T]) -> Iterator[_T]:
        """Return what yields the same items within the operation; it is not the current span while the consumer works."""
        error: BaseException | None = None
        try:
            yield from items
        except BaseException as e:
            error = e
            raise
        finally:
            if isinstance(error, IcelockError):
                refused(self._layer, self._name, self._target, error)
            self.end(error)

    def __enter__(self) -> Self:
        if self._current is not None:
            self._current.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, IcelockError):
            refused(self._layer, self._name, self._target, error)
        if self._current is not None:
            self._current.__exit__(None, None, None)
        self.end(error)

    def end(self, error: BaseException | None = None) -> None:
        """End the span; of an error it has the class, not the text."""
        if self._span is None:
            return
        if error is not None and not isinstance(error, GeneratorExit):
            status = sys.modules["opentelemetry.trace"].StatusCode.ERROR
            self._span.set_attribute("error.type", type(error).__qualname__)
            self._span.set_status(status)
        self._span.end()

    def _begin(self, trace: Any, remote: bool, attributes: dict[str, Any]) -> None:  # noqa: FBT001
        _bridge()
        kind = trace.SpanKind.CLIENT if remote else trace.SpanKind.INTERNAL
        title = self._name if self._target is None else f"{self._name} {self._target}"
        self._span = trace.get_tracer(_NAME).start_span(title, kind=kind, attributes=_given(attributes), record_exception=False)
        self._current = trace.use_span(self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False)


def on_table(layer: str, name: str, table: Iterable[str], catalog: str | None = None, **attributes: Any) -> Operation:
    """Return an operation on a table, with the attributes of OpenTelemetry's conventions for databases."""
    parts = tuple(table)
    described = {
        "db.system.name": _SYSTEM,
        "db.operation.name": name,
        "db.collection.name": ".".join(parts),
        "db.namespace": ".".join((*(() if catalog is None else (catalog,)), *parts[:-1])) or None,
        **_ours(attributes),
    }
    return Operation(layer, name, ".".join(parts), attributes=described)


def _given(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _ours(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{_NAME}.{name.replace('_', '.', 1)}": value for name, value in attributes.items()}


def _bridge() -> None:
    """Give the counters to OpenTelemetry's meter, once; without a provider its meter waits for one."""
    api: Any = sys.modules.get("opentelemetry.metrics")
    if api is None or _bridged:
        return
    _bridged.append(api)
    meter = api.get_meter(_NAME)
    for counter in fields(metrics.Metrics):
        meter.create_observable_counter(
            f"{_NAME}.{counter.name.replace('_', '.', 1)}",
            callbacks=[partial(_observed, api.Observation, counter.name)],
            unit=counter.metadata["unit"],
            description=counter.metadata["text"],
        )


def _observed(observation: Callable[[int], Any], name: str, _: object) -> list[Any]:
    return [observation(metrics.totals()[name])]
