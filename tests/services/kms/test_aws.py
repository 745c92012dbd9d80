"""``AwsKms`` against local-kms, which knows the states of keys, and moto, which knows rotation; faults come from a proxy in between."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from icelock.errors import KmsErrorKind, PolicyError
from icelock.kms.aws import AwsKms
from icelock.kms.loader import load_kms_client
from tests.servers.local_kms import local_kms, rotate
from tests.servers.running import free_ports, listens, running
from tests.services.kms.faulty_proxy import Answer, Drop, FaultyProxy, Silence
from tests.services.kms.service_contract import KEY, NO_WAIT, RotationContract, ServiceContract, failure, kind

SECRET = "secret-access-key-of-the-test"


@pytest.fixture(autouse=True)
def _credentials(monkeypatch, tmp_path):
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_KMS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@dataclass(frozen=True)
class Aws:
    """A server, an administrator's client, and keys ``alias/lake`` and ``alias/other``."""

    port: int
    admin: Any
    arn: str

    @property
    def settings(self) -> dict[str, str]:
        return {"encryption.kms-type": "aws", "kms.endpoint": f"http://127.0.0.1:{self.port}", "client.region": "us-east-1"}

    def new_key(self, alias: str, **more: str) -> str:
        arn = str(self.admin.create_key(**more)["KeyMetadata"]["Arn"])
        self.admin.create_alias(AliasName=f"alias/{alias}", TargetKeyId=arn)
        return arn


def _with_keys(port: int) -> Aws:
    admin = boto3.client(
        "kms",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id="admin",
        aws_secret_access_key="admin",
        config=Config(retries={"total_max_attempts": 1}),
    )
    aws = Aws(port, admin, "")
    aws.new_key("other")
    return Aws(port, admin, aws.new_key("lake"))


@pytest.fixture(scope="module")
def aws(tmp_path_factory) -> Iterator[Aws]:
    with local_kms(tmp_path_factory.mktemp("local-kms")) as port:
        yield _with_keys(port)


@pytest.fixture(scope="module")
def other_aws(tmp_path_factory) -> Iterator[Aws]:
    with local_kms(tmp_path_factory.mktemp("other-local-kms")) as port:
        yield _with_keys(port)


@pytest.fixture(scope="module")
def moto(tmp_path_factory) -> Iterator[Aws]:
    port = free_ports()
    command = (Path(sys.executable).parent / "moto_server", "-H", "127.0.0.1", "-p", str(port))
    with running(command, folder=tmp_path_factory.mktemp("moto"), is_up=lambda: listens(port)):
        yield _with_keys(port)


@pytest.fixture
def proxy(aws) -> Iterator[FaultyProxy]:
    with FaultyProxy(aws.port).serving() as serving:
        yield serving


@pytest.fixture
def behind_proxy(aws, proxy) -> dict[str, str]:
    return {**aws.settings, "kms.endpoint": proxy.url}


class TestContract(ServiceContract, RotationContract):
    @pytest.fixture
    def properties(self, aws):
        return aws.settings

    @pytest.fixture
    def other_properties(self, other_aws):
        return other_aws.settings

    @pytest.fixture
    def broken(self):
        return {"kms.endpoint": f"http://127.0.0.1:{free_ports()}"}

    @pytest.fixture
    def key_id(self):
        return "alias/lake"

    @pytest.fixture
    def other_key_id(self):
        return "alias/other"

    @pytest.fixture
    def rotate(self, aws):
        return lambda: rotate(aws.port, aws.arn)

    @pytest.fixture
    def secrets(self):
        return [SECRET.encode()]

    @pytest.mark.parametrize("position", [0, 0.9, 1], ids=["first", "ciphertext", "last"])
    def test_refuses_a_changed_blob(self, kms, key_id, position):
        """In the middle local-kms has the key's ARN, which it does not look at when the key is given."""
        super().test_refuses_a_changed_blob(kms, key_id, position)


def client(settings, **more):
    return load_kms_client({**settings, **NO_WAIT, **more})


def test_id_arn_and_alias_are_one_key(aws):
    kms = client(aws.settings)
    blob = kms.wrap_key(KEY, "alias/lake")
    names = (aws.arn, aws.arn.partition("/")[2], "alias/lake", aws.arn.partition("key/")[0] + "alias/lake")
    assert [kms.unwrap_key(blob, name) for name in names] == [KEY] * 4


def test_blob_is_the_raw_ciphertext_of_the_service(aws):
    kms = client(aws.settings)
    assert aws.admin.decrypt(CiphertextBlob=kms.wrap_key(KEY, "alias/lake"))["Plaintext"] == KEY
    assert kms.unwrap_key(aws.admin.encrypt(KeyId=aws.arn, Plaintext=KEY)["CiphertextBlob"], "alias/lake") == KEY


def test_an_rsa_key_wraps_with_the_algorithm_of_the_property(aws):
    aws.new_key("rsa", KeySpec="RSA_2048", KeyUsage="ENCRYPT_DECRYPT")
    kms = client(aws.settings, **{"kms.encryption-algorithm-spec": "RSAES_OAEP_SHA_256"})
    blob = kms.wrap_key(KEY, "alias/rsa")
    assert len(blob) == 256
    assert kms.unwrap_key(blob, "alias/rsa") == KEY


@pytest.mark.parametrize("state", ["disabled", "pending"])
def test_a_disabled_key_and_one_pending_deletion_are_disabled(aws, state):
    arn = aws.new_key(state)
    kms = client(aws.settings)
    blob = kms.wrap_key(KEY, arn)
    if state == "disabled":
        aws.admin.disable_key(KeyId=arn)
    else:
        aws.admin.schedule_key_deletion(KeyId=arn, PendingWindowInDays=7)
    assert kind(kms.wrap_key, KEY, arn) is KmsErrorKind.DISABLED
    assert kind(kms.unwrap_key, blob, arn) is KmsErrorKind.DISABLED
    if state == "disabled":
        aws.admin.enable_key(KeyId=arn)
        assert kms.unwrap_key(blob, arn) == KEY


def test_an_alias_that_was_moved_says_that_the_blob_is_not_the_keys(aws):
    """Old blobs open by the key's own name (cases C-38)."""
    first = aws.new_key("moved")
    kms = client(aws.settings)
    blob = kms.wrap_key(KEY, "alias/moved")
    second = aws.admin.create_key()["KeyMetadata"]["Arn"]
    aws.admin.update_alias(AliasName="alias/moved", TargetKeyId=second)
    assert kind(kms.unwrap_key, blob, "alias/moved") is KmsErrorKind.FOREIGN
    assert kms.unwrap_key(blob, first) == KEY
    assert kms.unwrap_key(kms.wrap_key(KEY, "alias/moved"), second) == KEY


def error(code: str, status: int = 400) -> Answer:
    body = json.dumps({"__type": code, "message": "s3cr3t words of the service"}).encode()
    return Answer(status, body, {"Content-Type": "application/x-amz-json-1.1"})


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("NotFoundException", KmsErrorKind.MISSING),
        ("InvalidArnException", KmsErrorKind.MISSING),
        ("DisabledException", KmsErrorKind.DISABLED),
        ("KMSInvalidStateException", KmsErrorKind.DISABLED),
        ("InvalidKeyUsageException", KmsErrorKind.DISABLED),
        ("AccessDeniedException", KmsErrorKind.DENIED),
        ("InvalidSignatureException", KmsErrorKind.DENIED),
        ("InvalidCiphertextException", KmsErrorKind.FOREIGN),
        ("IncorrectKeyException", KmsErrorKind.FOREIGN),
    ],
)
def test_answers_of_the_service_are_told_apart_and_not_asked_for_again(behind_proxy, proxy, code, expected):
    proxy.always = error(code)
    caught = failure(client(behind_proxy).unwrap_key, b"blob", "alias/lake")
    assert caught.kind is expected
    assert code in str(caught)
    assert "s3cr3t" not in str(caught)
    assert proxy.requests == 1


THROTTLED = error("ThrottlingException")


@pytest.mark.parametrize(
    "fault",
    [
        THROTTLED,
        error("KMSInternalException", 500),
        error("DependencyTimeoutException", 503),
        error("KeyUnavailableException", 500),
        Answer(502, b"<html>"),
        Answer(200, b"<html>"),
        Answer(200, b"{}"),
        Drop(),
    ],
)
def test_a_fault_that_ends_is_survived(behind_proxy, proxy, fault):
    kms = client(behind_proxy)
    proxy.faults = [fault, fault]
    blob = kms.wrap_key(KEY, "alias/lake")
    assert proxy.requests == 3
    proxy.faults = [fault, fault]
    assert kms.unwrap_key(blob, "alias/lake") == KEY
    assert proxy.requests == 6


def test_throttling_that_stays_ends_within_the_bound(behind_proxy, proxy):
    """Five calls in all: boto3's own retries are off."""
    proxy.always = THROTTLED
    caught = failure(client(behind_proxy).wrap_key, KEY, "alias/lake")
    assert caught.kind is KmsErrorKind.UNAVAILABLE
    assert "ThrottlingException" in str(caught)
    assert proxy.requests == 5


def test_a_call_without_an_answer_ends_at_its_time_out(behind_proxy, proxy):
    kms = client(behind_proxy, **{"kms.retry.call-timeout-ms": "300"})
    kms.wrap_key(KEY, "alias/lake")
    proxy.faults = [Silence()]
    assert kms.unwrap_key(kms.wrap_key(KEY, "alias/lake"), "alias/lake") == KEY
    assert proxy.requests == 4


@pytest.mark.parametrize("code", ["ExpiredTokenException", "UnrecognizedClientException"])
def test_expired_credentials_are_looked_for_again_within_the_call(behind_proxy, proxy, code, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = OLD\naws_secret_access_key = old\n")
    kms = client(behind_proxy)
    blob = kms.wrap_key(KEY, "alias/lake")
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = NEW\naws_secret_access_key = new\n")
    proxy.faults = [error(code)]
    assert kms.unwrap_key(blob, "alias/lake") == KEY
    assert ["OLD" in seen for seen in proxy.authorizations] == [True, True, False]
    proxy.always = error(code)
    assert kind(kms.unwrap_key, blob, "alias/lake") is KmsErrorKind.DENIED


def test_no_credentials_are_denied(aws, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    caught = failure(client(aws.settings).wrap_key, KEY, "alias/lake")
    assert caught.kind is KmsErrorKind.DENIED
    assert "NoCredentialsError" in str(caught)


def test_a_profile_that_is_not_there_is_denied(aws, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert kind(client(aws.settings).wrap_key, KEY, "alias/lake") is KmsErrorKind.DENIED


def test_no_region_is_said(aws):
    without = {name: value for name, value in aws.settings.items() if name != "client.region"}
    assert "client.region" in str(failure(client(without).wrap_key, KEY, "alias/lake"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kms.encryption-algorithm-spec": "AES"}, "must be one of SYMMETRIC_DEFAULT"),
        ({"kms.endpoint": "localhost:4599"}, "must be a URL"),
        ({"kms.end-point": "http://x"}, r"did you mean 'kms\.endpoint'"),
    ],
)
def test_wrong_settings_are_refused(given, message):
    with pytest.raises(PolicyError, match=message):
        client({"encryption.kms-type": "aws", **given})


def test_javas_property_for_generated_keys_is_let_through(aws):
    assert client(aws.settings, **{"kms.data-key-spec": "AES_256"}).wrap_key(KEY, "alias/lake")


def test_a_ready_client_is_used_as_it_is(aws):
    kms = AwsKms({}, client=aws.admin)
    assert kms.unwrap_key(kms.wrap_key(KEY, "alias/lake"), "alias/lake") == KEY


class TestMoto(RotationContract):
    """The second opinion, as far as it goes: it uses disabled keys and takes a blob of another key for a lack of rights."""

    @pytest.fixture
    def properties(self, moto):
        return moto.settings

    @pytest.fixture
    def kms(self, moto):
        return client(moto.settings)

    @pytest.fixture
    def key_id(self):
        return "alias/lake"

    @pytest.fixture
    def rotate(self, moto):
        return lambda: moto.admin.rotate_key_on_demand(KeyId=moto.arn)

    @pytest.mark.parametrize("length", [16, 24, 32])
    def test_round_trip(self, kms, length):
        assert kms.unwrap_key(kms.wrap_key(b"k" * length, "alias/lake"), "alias/lake") == b"k" * length

    @pytest.mark.parametrize("key_id", ["alias/none", "icelock-no-such-key", "bc436485-5092-42b8-92a3-0aa8b93536dc"])
    def test_missing_keys(self, kms, key_id):
        assert kind(kms.wrap_key, KEY, key_id) is KmsErrorKind.MISSING
        assert kind(kms.unwrap_key, b"blob", key_id) is KmsErrorKind.MISSING

    @pytest.mark.parametrize("cut", [1, 15, -1])
    def test_cut_blobs(self, kms, cut):
        blob = kms.wrap_key(KEY, "alias/lake")
        assert kind(kms.unwrap_key, blob[:cut], "alias/lake") is KmsErrorKind.FOREIGN
