"""Encryption settings in a form that PyIceberg hands on as any other property: each is refused, and other people's names are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyiceberg.catalog
import pyiceberg.catalog.glue
import pyiceberg.catalog.hive
import pyiceberg.catalog.rest
import pyiceberg.catalog.sql
import pyiceberg.io
import pytest
from pyiceberg.table import TableProperties

import icelock
from icelock.errors import PolicyError
from icelock.properties import check_catalog_properties, check_misplaced
from tests.lakes.sqlite import TestLake, people

SCHEMA = people().schema


def plain(lake: TestLake, **more: Any) -> Any:
    """Load a catalog that has no KMS but for what is given."""
    return icelock.load_catalog("lake", type="sql", uri=f"sqlite:///{lake.folder / 'plain.db'}", warehouse=str(lake.warehouse), **more)


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("encryption", {"kms-type": "memory"}, "'encryption.kms-type'"),
        ("kms", {"memory": {"keys": {"k": "00"}}}, "'kms.memory.keys.k'"),
        ("kms", {"local": {"path": "x"}}, "'kms.local.path'"),
        ("icelock", {"require_encryption": "true"}, "'icelock.require-encryption'"),
        ("icelock.pins.db", {"t": "k"}, "'icelock.pins.db.t'"),
        ("table-default", {"encryption": {"key_id": "k"}}, "'table-default.encryption.key-id'"),
        ("py", {"kms": {"impl": "a.B"}}, "'py-kms-impl'"),
        ("encryption", {}, "'encryption.kms-type'"),
        ("kms", "memory", "'encryption.kms-type'"),
        ("encryption.kms-impl", "", "name the class"),
        ("py-kms-impl", " ", "name the class"),
        ("kms.local.path", "x", "'?encryption.kms-type"),
        ("kms.memory.keys.k", "00", "encryption.kms-type"),
        ("azure.keyvault.url", "https://x", "encryption.kms-type"),
        ("kms-type", "memory", "'encryption.kms-type'"),
        ("kms_impl", "a.B", "'encryption.kms-impl'"),
        ("py.kms.impl", "a.B", "'py-kms-impl'"),
        ("Py-Kms-Impl", "a.B", "'py-kms-impl'"),
        ("encyption.kms-type", "memory", "'encryption.kms-type'"),
        ("kms-local-path", "x", "'kms.local.path'"),
        ("kms_mine", "x", "'kms.mine'"),
        ("key-id", "k", "'table-default.encryption.key-id'"),
        ("require-encryption", "true", "'icelock.require-encryption'"),
        ("icelock_pins_file", "x", "'icelock.pins-file'"),
        ("table-default.key-id", "k", "'encryption.key-id'"),
    ],
)
def test_a_catalog_says_what_was_meant(lake: TestLake, name: str, value: object, right: str) -> None:
    with pytest.raises(PolicyError, match=right):
        plain(lake, **{name: value})


@pytest.mark.parametrize(
    ("variable", "right"),
    [
        ("ICELOCK_REQUIRE_ENCRYPTION", "'icelock.require-encryption'"),
        ("REQUIRE_ENCRYPTION", "'icelock.require-encryption'"),
        ("TABLE_DEFAULT_ENCRYPTION_KEY_ID", "'table-default.encryption.key-id'"),
        ("TABLE_OVERRIDE_WRITE__FORMAT", r"'table-override\."),
        ("ENCRYPTION_KMS_TYPE", "'encryption.kms-type'"),
        ("ENCRYPTION__KMS__TYPE", "'encryption.kms-type'"),
        ("ENCRYPTION__KEY__ID", "'table-default.encryption.key-id'"),
        ("KMS_TYPE", "'encryption.kms-type'"),
        ("KMS_LOCAL_PATH", "'kms.local.path'"),
        ("PY__KMS__IMPL", "'py-kms-impl'"),
    ],
)
def test_so_does_one_that_is_set_by_the_environment(lake: TestLake, monkeypatch: pytest.MonkeyPatch, variable: str, right: str) -> None:
    """PyIceberg makes ``__`` a dot and ``_`` a hyphen."""
    monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{variable}", "true")
    with pytest.raises(PolicyError, match=right):
        plain(lake)


def test_so_does_one_of_the_configuration_file(lake: TestLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".pyiceberg.yaml").write_text("catalog:\n  lake:\n    encryption:\n      kms-type: memory\n")
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    with pytest.raises(PolicyError, match=r"'encryption' is a block of others.*'encryption\.kms-type'"):
        plain(lake)


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("key-id", "'encryption.key-id'"),
        ("key_id", "'encryption.key-id'"),
        ("write.encryption.key-id", "'encryption.key-id'"),
        ("table-default.encryption.key-id", "'encryption.key-id'"),
        ("data-key-length", "'encryption.data-key-length'"),
        ("kms-type", "'encryption.kms-type' for the catalog"),
        ("kms-impl", "'encryption.kms-impl' for the catalog"),
        ("py.kms.impl", "'py-kms-impl' for the catalog"),
        ("require-encryption", "'icelock.require-encryption' for the catalog"),
    ],
)
def test_a_table_says_what_was_meant(lake: TestLake, name: str, right: str) -> None:
    catalog = plain(lake)
    catalog.create_namespace("db")
    with pytest.raises(PolicyError, match=right):
        catalog.create_table("db.t", SCHEMA, properties={name: "k"})
    assert lake.files() == {}
    table = catalog.create_table("db.t", SCHEMA)
    with pytest.raises(PolicyError, match=right), table.transaction() as change:
        change.set_properties({name: "k"})
    assert name not in catalog.load_table("db.t").properties


def test_a_table_of_others_with_such_a_property_goes_on(lake: TestLake) -> None:
    """It may mean something to them; what is there is not ours to judge."""
    theirs = pyiceberg.catalog.sql.SqlCatalog("lake", uri=f"sqlite:///{lake.folder / 'plain.db'}", warehouse=str(lake.warehouse))
    theirs.create_namespace("db")
    theirs.create_table("db.t", SCHEMA, properties={"key-id": "7"})
    with plain(lake).load_table("db.t").transaction() as change:
        change.set_properties({"owner": "us"})
    assert plain(lake).load_table("db.t").properties == {"key-id": "7", "owner": "us"}


MODULES = (pyiceberg.catalog, pyiceberg.catalog.glue, pyiceberg.catalog.hive, pyiceberg.catalog.rest, pyiceberg.catalog.sql, pyiceberg.io)


def test_names_of_pyiceberg_mean_what_they_mean() -> None:
    """Also those with words of ours in them."""
    known = {value for module in MODULES for name, value in vars(module).items() if name.isupper() and isinstance(value, str) and value}
    assert {"s3.access-key-id", "s3.sse-kms-key-id", "s3.server-side-encryption", "glue.access-key-id", "py-io-impl"} <= known
    check_catalog_properties(dict.fromkeys(known - {"default"}, "x"))
    more = ("header.X-Key-Id", "header.X-Encryption", "kms.of-my-own.class", "client.region", "gcs.oauth2.token")
    check_catalog_properties(dict.fromkeys(more, "x"))
    check_catalog_properties({"auth": {"type": "custom", "custom": {"key-id": "x"}}, "ssl": {"cabundle": "x"}})
    check_misplaced({value for name, value in vars(TableProperties).items() if name.isupper() and isinstance(value, str)})
    check_misplaced(("owner", "comment", "company.key-id", "parquet.encryption.footer.key", "s3.sse-kms-key-id"))
