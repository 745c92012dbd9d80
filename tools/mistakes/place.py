"""Where mistakes are run: a lake in a folder, with an encrypted table ``shop.orders`` of three rows and a plain one beside it.

Messages are the same in each run: the folder is called /lake, and numbers of snapshots, ports and times have a name instead.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pyarrow as pa
from click.testing import CliRunner
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

import icelock
from icelock.cli.main import main
from tools.mistakes.mistake import Mistake

_SHOWN: Final = "/lake"
_NUMBERS: Final = (
    (re.compile(r"\b\d{15,19}\b"), "4358162539105481237"),
    (re.compile(r"0x[0-9a-f]{6,}"), "0x7f"),
    (re.compile(r"-[0-9a-f]{16}-(\d{5}\.parquet)"), r"-9c1d70b25e3fa684-\1"),
    (re.compile(r"#\d+(?=L?\b)"), "#1"),  # Spark's number of a column
)
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
SCHEMA: Final = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "city", StringType()),
    NestedField(3, "at", TimestamptzType()),
    identifier_field_ids=[1],
)


def orders() -> pa.Table:
    """Return three rows of the table."""
    times = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("city", pa.string()), pa.field("at", pa.timestamp("us", "UTC"))]
    return pa.table([[1, 2, 3], ["Oslo", "Rome", "Lima"], times], schema=pa.schema(fields))


class Place:
    """The lake of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with contextlib.chdir(folder):
            for command in ("init keyring.json", "add keyring.json lake-key"):
                done = CliRunner().invoke(main, ["keyring", *command.split(), "--key-file", "keyring.key"])
                assert done.exit_code == 0, done.output
        self.settings = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/lake.db",
            "warehouse": f"file://{folder}/warehouse",
            "encryption.kms-type": "local",
            "kms.local.path": f"{folder}/keyring.json",
            "kms.local.key-file": f"{folder}/keyring.key",
        }
        self.catalog = icelock.load_catalog("lake", **self.settings)
        self.catalog.create_namespace("shop")
        self.table: Any = self.catalog.create_table("shop.orders", SCHEMA, properties={"encryption.key-id": "lake-key"})
        self.table.append(orders())
        self.plain_catalog = icelock.load_catalog(
            "plain", type="sql", uri=f"sqlite:///{folder}/plain.db", warehouse=f"file://{folder}/plain"
        )
        self.plain_catalog.create_namespace("shop")
        self.plain: Any = self.plain_catalog.create_table("shop.old", SCHEMA, properties={"format-version": "2"})

    def names(self) -> dict[str, Any]:
        """Return what the code of a mistake can use."""
        own = {"catalog": self.catalog, "table": self.table.refresh(), "settings": dict(self.settings), "schema": SCHEMA}
        plain = {"plain_catalog": self.plain_catalog, "plain": self.plain}
        return {**own, **plain, "rows": orders(), "icelock": icelock, "pa": pa, "datetime": datetime}

    def message(self, mistake: Mistake, more: Mapping[str, Any] | None = None) -> str:
        """Run a mistake, and return what is printed: an error's kind and text, or what a command says; ``more`` are names for its code."""
        configured = self._configuration() if mistake.is_command or mistake.configured else {}
        with contextlib.chdir(self.folder), _without(mistake.without), patch.dict(os.environ, configured):
            names = {**self.names(), **(more or {})}
            exec(mistake.before, names)  # noqa: S102 - our own code
            try:
                said = self._printed(mistake.code) if mistake.is_command else _raised(mistake.code, names)
            finally:
                exec(mistake.after, names)  # noqa: S102 - likewise
        return self._neutral(said)

    def _configuration(self) -> dict[str, str]:
        return {f"PYICEBERG_CATALOG__LAKE__{k.upper().replace('.', '__').replace('-', '_')}": v for k, v in self.settings.items()}

    @staticmethod
    def _printed(command: str) -> str:
        done = CliRunner().invoke(main, shlex.split(command)[1:], prog_name="icelock")
        assert done.exit_code != 0, f"no error: {command}"
        return done.output.strip()

    def _neutral(self, text: str) -> str:
        text = _UUID.sub("5f2b9a0e-6d1c-4b7a-9e55-3c1d2f4a8b60", text.replace(str(self.folder), _SHOWN))
        for pattern, name in _NUMBERS:
            text = pattern.sub(name, text)
        return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _raised(code: str, names: dict[str, Any]) -> str:
    try:
        exec(code, names)  # noqa: S102 - our own code
    except Exception as e:  # noqa: BLE001 - any kind is what a user would see
        return f"{type(e).__name__}: {e}"
    raise AssertionError(f"no error: {code}")


@contextlib.contextmanager
def _without(packages: tuple[str, ...]) -> Iterator[None]:
    """Let packages not be there, and what imports them be imported anew."""
    if not packages:
        yield
        return
    gone = [name for name in sys.modules if name.startswith(("icelock.spark", "icelock.kms."))]
    with patch.dict(sys.modules, dict.fromkeys(packages)):
        for name in gone:
            del sys.modules[name]
        importlib.invalidate_caches()
        yield
