"""docs/reference/properties.md says of every key service what the code knows: names and defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from icelock.kms import aws, azure, keystore, loader, pkcs11, unlock, vault
from icelock.kms.retry import RETRY_PROPERTIES, RetryPolicy

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "properties.md"
SECTION = re.compile(r"^### (?:KMS `(\w+)`|(Retries), for every KMS)\n(.*?)(?=^##)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `([^`]+)` \| (.*?) \|", re.MULTILINE)
TABLES = {kms_type or retries: dict(ROW.findall(text)) for kms_type, retries, text in SECTION.findall(PAGE.read_text(encoding="utf-8"))}


def test_every_service_has_a_section_and_no_other():
    assert set(TABLES) == {*loader._BUILT_IN, "Retries"}


@pytest.mark.parametrize("kms_type", loader._BUILT_IN)
def test_a_section_has_the_names_that_the_loader_knows(kms_type):
    built_in = loader._BUILT_IN[kms_type]
    prefixed = {f"{built_in.prefix}<id>"} if built_in.prefix else set()
    assert set(TABLES[kms_type]) == {*built_in.names, *prefixed}


def test_retries_have_their_defaults():
    policy = RetryPolicy()
    expected = {name: f"`{getattr(policy, name.removeprefix('kms.retry.').replace('-', '_'))}`" for name in RETRY_PROPERTIES}
    assert TABLES["Retries"] == expected


@pytest.mark.parametrize(
    ("kms_type", "name", "default"),
    [
        ("aws", "kms.encryption-algorithm-spec", aws.DEFAULT_ALGORITHM),
        ("azure", "azure.keyvault.key-wrap-algorithm", azure.DEFAULT_ALGORITHM),
        ("vault", "kms.vault.mount", vault.DEFAULT_MOUNT),
        ("keystore", "kms.client.keystore.password-env", keystore.PASSWORD_ENV_DEFAULT),
        ("pkcs11", "kms.pkcs11.pin-env", pkcs11.PIN_ENV_DEFAULT),
        ("local", "kms.local.passphrase-env", unlock.PASSPHRASE_ENV_DEFAULT),
    ],
)
def test_defaults_are_those_of_the_clients(kms_type, name, default):
    assert TABLES[kms_type][name] == f"`{default}`"


@pytest.mark.parametrize("kms_type", sorted(set(loader._BUILT_IN) - {"memory", "local"}))
def test_every_service_has_a_page_of_its_own(kms_type):
    page = (PAGE.parents[1] / "how-to" / f"kms-{kms_type}.md").read_text(encoding="utf-8")
    assert f"| `{kms_type}` | [kms-{kms_type}.md](kms-{kms_type}.md) |" in (PAGE.parents[1] / "how-to" / "kms.md").read_text(
        encoding="utf-8"
    )
    assert f'"encryption.kms-type": "{kms_type}"' in page
    for heading in ("Rights", "Rotate", "Disaster", "What is logged"):
        assert f"## {heading}\n" in page
