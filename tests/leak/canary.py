"""A table whose values would be known anywhere, and what is done to it; also run as a script by a process that is killed.

``ROWS`` are values of rows: they belong into encrypted files only. ``SAID`` are values that the format keeps in metadata.json: names,
comments, defaults, properties (docs/threat-model.md).
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, ListType, LongType, NestedField, StringType

import icelock
from icelock.keys.entropy import SystemEntropy

ROWS = {
    "min": "!0canary-min-7431",
    "max": "~zcanary-max-9162",
    "dictionary": "canary-dictionary-5520",
    "partition": "canary-partition-3309",
    "nested": "canary-nested-1187",
    "binary": "canary-binary-6612",
    "number": "2106408236482003651",
    "deleted": "canary-deleted-7719",
    "upserted": "canary-upserted-4450",
}
SAID = {
    "default": "canary-default-4471",
    "column comment": "canary-comment-8123",
    "table property": "canary-property-2910",
    "snapshot property": "canary-snapshot-6034",
}
# A value in statements: Spark shows it in plans, logs and the event log (docs/threat-model.md).
LITERAL = "canary-literal-2958"
# A credential of the catalog.
TOKEN = "canary-token-7043"
NUMBER = int(ROWS["number"])
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False, doc=SAID["column comment"]),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "part", StringType(), required=False),
    NestedField(4, "tags", ListType(element_id=6, element=StringType(), element_required=False), required=False),
    NestedField(5, "blob", BinaryType(), required=False),
)
BY_PART = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "part"))
NO_VALUES_IN_PATHS = {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"}
KEYED = {"encryption.key-id": "keyA", "comment": SAID["table property"], "write.summary.partition-limit": "100"}
SNAPSHOT = {"job": SAID["snapshot property"]}


def rows(start: int = 0, count: int = 50, *, name: str | None = None) -> pa.Table:
    """Return rows with the values of ``ROWS``: least, greatest, repeated, nested, in bytes, as a number."""
    names = [name or (ROWS["min"], ROWS["max"], ROWS["dictionary"])[min(i, 2)] for i in range(count)]
    return pa.table(
        {
            "id": pa.array([NUMBER + start + i for i in range(count)], pa.int64()),
            "name": names,
            "part": [ROWS["partition"]] * count,
            "tags": pa.array([[ROWS["nested"]]] * count, pa.list_(pa.string())),
            "blob": pa.array([ROWS["binary"].encode()] * count, pa.binary()),
        }
    )


class SpyEntropy:
    """The system's random bytes, of which those are noted that became keys."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self._prefix_next = False
        self._inner = SystemEntropy()

    def random_bytes(self, n: int) -> bytes:
        made = self._inner.random_bytes(n)
        caller = sys._getframe(1).f_code.co_name
        # Nonces, ids and AAD prefixes are not secret; a file's prefix is drawn after its key.
        if caller == "mint_kek" or (caller == "mint_file_key" and not self._prefix_next):
            self.keys.append(made)
        if caller == "mint_file_key":
            self._prefix_next = not self._prefix_next
        return made


def open_catalog(properties: dict[str, str], spy: SpyEntropy) -> Any:
    catalog = icelock.load_catalog("test", **properties)
    catalog.encryption.entropy = spy
    return catalog


def make(catalog: Any, name: str, **properties: str) -> Any:
    return catalog.create_table(name, SCHEMA, partition_spec=BY_PART, properties={**KEYED, **NO_VALUES_IN_PATHS, **properties})


def die_while_committing(name: str) -> None:
    """Append to a table and die by SIGKILL at the commit; the keys are told to the parent first."""
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    settings = json.loads(sys.stdin.read())
    spy = SpyEntropy()
    catalog = open_catalog(settings["properties"], spy)
    table = catalog.load_table(name)

    def die(*_: Any, **__: Any) -> None:
        Path(settings["keys"]).write_text(json.dumps([key.hex() for key in spy.keys]))
        os.kill(os.getpid(), signal.SIGKILL)

    catalog._stage_commit = die
    table.append(rows(5000), snapshot_properties=SNAPSHOT)


if __name__ == "__main__":
    die_while_committing(sys.argv[1])
