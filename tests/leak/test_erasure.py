"""A master key that is gone takes its tables with it, and only those (C-70)."""

from __future__ import annotations

from typing import Any

import pytest

import icelock
from icelock.errors import KmsError, KmsErrorKind
from tests.helpers.counting_kms import KEYS
from tests.lakes.sqlite import TestLake, people
from tests.leak.needles import texts

VALUES = {"name": "canary-", "city": "town-"}


def catalog(lake: TestLake, *names: str) -> Any:
    """Return a catalog of a fresh process whose KMS has these master keys."""
    settings = {key: value for key, value in lake.properties().items() if not key.startswith(("encryption.", "kms."))}
    keys = {f"kms.memory.keys.{name}": KEYS[name].hex() for name in names}
    return icelock.load_catalog("test", **settings, **{"encryption.kms-type": "memory"}, **keys)


def test_a_destroyed_key_erases_its_tables_and_no_others(tmp_path: Any) -> None:
    lake = TestLake(tmp_path)
    before = catalog(lake, "keyA", "keyB")
    before.create_namespace("db")
    for name, key in (("db.gone", "keyA"), ("db.stays", "keyB")):
        before.create_table(name, people().schema, properties={"encryption.key-id": key}).append(people())
    after = catalog(lake, "keyB")
    assert set(after.list_tables("db")) == {("db", "gone"), ("db", "stays")}
    table = after.load_table("db.gone")
    assert table.schema().column_names == ["id", "name", "city"]
    for use in (lambda: table.scan().to_arrow(), lambda: table.append(people()), table.inspect.files, lambda: after.purge_table("db.gone")):
        with pytest.raises(KmsError) as caught:
            use()
        assert caught.value.kind is KmsErrorKind.MISSING
    stored = lake.files()
    assert not [found for name, data in stored.items() for found in texts(VALUES, name, data)]
    after.drop_table("db.gone")
    assert after.list_tables("db") == [("db", "stays")]
    assert lake.files() == stored
    assert after.load_table("db.stays").scan().count() == 10
