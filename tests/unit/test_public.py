"""What docs/architecture.md calls public is there, under that name."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

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
