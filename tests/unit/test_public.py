"""What docs/architecture.md calls public is there, under that name."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import icelock
import icelock.spark
from icelock.catalog import load

KEYS = {"encryption.kms-type": "memory", "kms.memory.keys.a": "00" * 16}
PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
PUBLIC = PAGE[PAGE.index("## What is public") :]
OF_EXTRAS = {"aws": "botocore", "azure": "azure.identity", "gcp": "google.cloud.kms", "vault": "hvac", "keystore": "asn1crypto"}


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:icelock\.[a-z0-9_.]+|[a-z0-9]+)\.[A-Z]\w+)`", PUBLIC))))
def test_a_class_is_where_the_page_says(path: str) -> None:
    module, _, name = (path if path.startswith("icelock.") else f"icelock.kms.{path}").rpartition(".")
    if module.startswith("icelock.kms."):
        pytest.importorskip(OF_EXTRAS.get(module.rpartition(".")[2], "icelock"))
    assert getattr(importlib.import_module(module), name).__name__ == name


@pytest.mark.parametrize("module", sorted(set(re.findall(r"^\| `(icelock[a-z.]*)` \|", PUBLIC, re.MULTILINE))))
def test_a_module_lists_what_is_public(module: str) -> None:
    found = importlib.import_module(module)
    assert found.__all__
    assert all(hasattr(found, name) for name in found.__all__)


@pytest.mark.parametrize("path", load._CLASSES.values())
def test_each_catalog_is_a_catalog(path: str):
    module, _, name = path.rpartition(".")
    assert issubclass(getattr(importlib.import_module(module), name), icelock.Catalog)


def test_tables_of_a_catalog_are_tables(tmp_path):
    catalog = icelock.load_catalog("here", type="in-memory", warehouse=f"file://{tmp_path}", **KEYS)
    assert isinstance(catalog, icelock.Catalog)
    catalog.create_namespace("db")
    schema = Schema(NestedField(1, "id", LongType()))
    made = catalog.create_table("db.t", schema, properties={"encryption.key-id": "a"})
    plain = catalog.create_table("db.p", schema, properties={"icelock.plain": "true", "format-version": "2"})
    assert isinstance(made, icelock.Table)
    assert isinstance(catalog.load_table("db.t"), icelock.Table)
    assert isinstance(icelock.StaticTable.from_metadata(made.metadata_location), icelock.Table)
    assert (made.encrypted, plain.encrypted) == (True, False)
    assert not isinstance(plain, icelock.Table)  # it has the methods, and PyIceberg writes it


def test_completion_of_the_packages_offers_what_is_public():
    code = (
        "import icelock; print(*dir(icelock)); import icelock.spark, icelock.maintenance; print(*dir(icelock))\nprint(*dir(icelock.spark))"
    )
    first, then, spark = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"Catalog", "Table", "load_catalog", "IntegrityError"} <= {*first.split()}
    assert not {"annotations", "Any", "TYPE_CHECKING", "_moved", "catalog", "io"} & {*then.split()}
    assert {"spark", "maintenance"} <= {*then.split()} - {*first.split()}
    assert spark.split() == sorted(icelock.spark.__all__)
