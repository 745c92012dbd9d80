"""A mixed table: one of version 2 is upgraded and gets a key id, then encrypted files beside the plain ones."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from icelock.properties import PLAINTEXT_FILES, PLAINTEXT_FILES_ALLOW
from tests.helpers.tables import local
from tests.lakes.sqlite import TestLake, people

ALLOW = {PLAINTEXT_FILES: PLAINTEXT_FILES_ALLOW}


def set_key_id(lake: TestLake, plain: Any, **properties: str) -> None:
    """Upgrade a table of version 2 and set its key id, which Java does by two statements: metadata is all that changes."""
    with sqlite3.connect(lake.folder / "catalog.db") as database:
        database.execute("update iceberg_tables set metadata_location = ?", (keyed_metadata(plain, **properties),))


def keyed_metadata(plain: Any, **properties: str) -> str:
    """Write the metadata file of a table of version 2 that is upgraded and gets a key id; return its location."""
    location = Path(local(plain.metadata_location))
    said = json.loads(location.read_text())
    said |= {"format-version": 3, "next-row-id": 0, "properties": {**said["properties"], "encryption.key-id": "keyA", **properties}}
    keyed = location.with_name("00090-3e0d1c1c-7d38-4a4c-9d9e-0c6d5f6f7a10.metadata.json")
    keyed.write_text(json.dumps(said))
    return str(plain.metadata_location.replace(location.name, keyed.name))


def mixed_table(lake: TestLake, plain: Any) -> Any:
    """Make a mixed table of a plain one, with the rows 100 to 104 in an encrypted file, and return it."""
    set_key_id(lake, plain)
    lake.catalog(**ALLOW).load_table("db.t").append(people(100, 5))
    return lake.catalog(**ALLOW).load_table("db.t")
