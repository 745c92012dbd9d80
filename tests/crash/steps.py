"""The steps of an operation from outside: storage, catalog and KMS, each call with a moment before and one after it.

``watch(hook)`` has the hook called at each moment with a name such as ``before close manifest`` and the file's location. The three
doubles are those that a user can put in: a FileIO by ``py-io-impl``, a KMS by ``encryption.kms-impl``, and SQL events.

Not here: what a hook does (``server`` kills, ``tests/faults`` raises).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from sqlalchemy import event

from icelock.kms.memory import MemoryKms
from tests.helpers.counting_kms import KEYS

Hook = Callable[[str, str], None]
HOOKS: Final[list[Hook]] = []
_KINDS: Final = ((r"\.metadata\.json$", "metadata.json"), (r"/snap-", "list"), (r"-m\d+\.avro$", "manifest"), (r"\.puffin$", "vectors"))


@contextmanager
def watch(hook: Hook) -> Iterator[None]:
    HOOKS.append(hook)
    try:
        yield
    finally:
        HOOKS.remove(hook)


def moment(name: str, location: str = "") -> None:
    for hook in HOOKS:
        hook(name, location)


def around(what: str, do: Callable[[], Any], location: str = "") -> Any:
    moment(f"before {what}", location)
    result = do()
    moment(f"after {what}", location)
    return result


def kind(location: str) -> str:
    return next((name for pattern, name in _KINDS if re.search(pattern, location)), "data")


class SteppingStream:
    """A stream whose first write is a step, and its closing."""

    def __init__(self, inner: Any, location: str) -> None:
        self._inner = inner
        self._location = location
        self._written = False
        self._closed = False

    def write(self, data: Any) -> int:
        if self._written:
            return self._inner.write(data)  # type: ignore[no-any-return]
        self._written = True
        half = memoryview(data).nbytes // 2
        self._inner.write(memoryview(data).cast("B")[:half])
        moment(f"halfway through write {kind(self._location)}", self._location)
        return half + self._inner.write(memoryview(data).cast("B")[half:])  # type: ignore[no-any-return]

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            around(f"close {kind(self._location)}", self._inner.close, self._location)

    @property
    def closed(self) -> bool:
        return bool(self._inner.closed)

    def tell(self) -> int:
        return int(self._inner.tell())

    def flush(self) -> None:
        self._inner.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class SteppingOutput(OutputFile):
    def __init__(self, inner: OutputFile) -> None:
        super().__init__(inner.location)
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def exists(self) -> bool:
        return self._inner.exists()

    def to_input_file(self) -> InputFile:
        return SteppingInput(self._inner.to_input_file())

    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002 - PyIceberg's signature
        stream = around(f"create {kind(self.location)}", lambda: self._inner.create(overwrite=overwrite), self.location)
        return SteppingStream(stream, self.location)


class SteppingInput(InputFile):
    def __init__(self, inner: InputFile) -> None:
        super().__init__(inner.location)
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def exists(self) -> bool:
        return self._inner.exists()

    def open(self, seekable: bool = True) -> Any:  # noqa: FBT001, FBT002 - PyIceberg's signature
        return around(f"read {kind(self.location)}", lambda: self._inner.open(seekable), self.location)


class SteppingFileIO(PyArrowFileIO):
    def new_input(self, location: str) -> Any:
        return SteppingInput(super().new_input(location))

    def new_output(self, location: str) -> Any:
        return SteppingOutput(super().new_output(location))

    def delete(self, location: Any) -> None:
        place = location if isinstance(location, str) else location.location
        around(f"delete {kind(place)}", lambda: super(SteppingFileIO, self).delete(location), place)


class SteppingKms:
    """The KMS of ``counting_kms`` with the same keys."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        del properties
        self._inner = MemoryKms({f"kms.memory.keys.{name}": key.hex() for name, key in KEYS.items()})

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        return around("wrap key", lambda: self._inner.wrap_key(key, wrapping_key_id))  # type: ignore[no-any-return]

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        return around("unwrap key", lambda: self._inner.unwrap_key(wrapped_key, wrapping_key_id))  # type: ignore[no-any-return]


def stepping(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a lake's catalog properties with the doubles in place."""
    kept = {name: value for name, value in properties.items() if not name.startswith(("kms.", "encryption."))}
    return {**kept, "py-io-impl": "tests.crash.steps.SteppingFileIO", "encryption.kms-impl": "tests.crash.steps.SteppingKms"}


def step_through_sql(catalog: Any) -> Any:
    """Make the statements that change the catalog's database steps, and its COMMIT."""

    def named(statement: str) -> str | None:
        verb = statement.split(None, 1)[0].upper()
        return f"SQL {verb}" if verb in {"INSERT", "UPDATE", "DELETE"} else None

    def before(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        del connection, cursor, rest
        if named(statement):
            moment(f"before {named(statement)}")

    def after(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        del connection, cursor, rest
        if named(statement):
            moment(f"after {named(statement)}")

    event.listen(catalog.engine, "before_cursor_execute", before)
    event.listen(catalog.engine, "after_cursor_execute", after)
    commit = catalog.engine.dialect.do_commit
    catalog.engine.dialect.do_commit = lambda connection: around("SQL COMMIT", lambda: commit(connection))
    return catalog


class SteppingMetastore:
    """A Hive catalog's connections; every call over one is a step."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __enter__(self) -> Any:
        return _SteppingClient(self._inner.__enter__())

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)


class _SteppingClient:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        return lambda *arguments, **named: around(f"metastore {name}", lambda: call(*arguments, **named))


def step_through_metastore(catalog: Any) -> Any:
    """Make the calls of a Hive catalog steps."""
    catalog._client = SteppingMetastore(catalog._client)
    return catalog
