"""``GcpKms`` through the official client library against a double of Cloud KMS."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest
from google.auth.exceptions import RefreshError
from grpc import StatusCode

from icelock.errors import KmsErrorKind
from icelock.kms.gcp import GcpKms
from icelock.kms.loader import load_kms_client
from tests.servers.gcp_double import KEY_RING, GcpDouble, Token, gcp_client
from tests.servers.running import free_ports
from tests.services.kms.service_contract import KEY, NO_WAIT, RotationContract, ServiceContract, failure, kind

LAKE, OTHER = KEY_RING + "lake", KEY_RING + "other"


def _double() -> Iterator[GcpDouble]:
    with GcpDouble().serving() as serving:
        for name in ("lake", "other"):
            serving.add_version(name)
        yield serving


@pytest.fixture(scope="module")
def gcp() -> Iterator[GcpDouble]:
    yield from _double()


@pytest.fixture(scope="module")
def other_gcp() -> Iterator[GcpDouble]:
    yield from _double()


@pytest.fixture(autouse=True)
def _as_new(gcp):
    gcp.calls = 0
    yield
    gcp.faults, gcp.always = [], None


def settings(double, token="writer"):
    properties = {"kms.double.port": str(double.port), "kms.double.token": token}
    return {"encryption.kms-impl": "tests.servers.gcp_double.DoubleGcpKms", **properties, **NO_WAIT}


def client(double, token="writer", **more):
    return load_kms_client({**settings(double, token), **more})


class TestContract(ServiceContract, RotationContract):
    test_a_spark_job_asks_the_service_once = None  # the driver asks whichever client it has: on AWS, a keystore and PKCS#11

    @pytest.fixture
    def properties(self, gcp):
        return settings(gcp)

    @pytest.fixture
    def other_properties(self, other_gcp):
        return settings(other_gcp)

    @pytest.fixture
    def broken(self):
        return {"kms.double.port": str(free_ports())}

    @pytest.fixture
    def key_id(self):
        return LAKE

    @pytest.fixture
    def other_key_id(self):
        return OTHER

    @pytest.fixture
    def missing_key_id(self):
        return KEY_RING + "typo"

    @pytest.fixture
    def rotate(self, gcp):
        return lambda: gcp.add_version("lake")


def test_blob_is_the_raw_ciphertext_of_the_service(gcp):
    blob = client(gcp).wrap_key(KEY, OTHER)
    assert blob[0] == 1
    assert len(blob) == 1 + 12 + 16 + 16


def test_a_reader_unwraps_and_is_denied_to_wrap(gcp):
    blob = client(gcp).wrap_key(KEY, LAKE)
    reader = client(gcp, "reader")
    assert reader.unwrap_key(blob, LAKE) == KEY
    assert kind(reader.wrap_key, KEY, LAKE) is KmsErrorKind.DENIED


def test_a_wrong_token_is_denied(gcp):
    caught = failure(client(gcp, "nobody").wrap_key, KEY, LAKE)
    assert caught.kind is KmsErrorKind.DENIED
    assert "Unauthenticated" in str(caught)
    assert gcp.calls == 1


def test_a_disabled_version_is_disabled(gcp):
    gcp.add_version("state")
    name = KEY_RING + "state"
    kms = client(gcp)
    blob = kms.wrap_key(KEY, name)
    gcp.keys[name].disabled.add(1)
    assert kind(kms.wrap_key, KEY, name) is KmsErrorKind.DISABLED
    assert kind(kms.unwrap_key, blob, name) is KmsErrorKind.DISABLED
    gcp.add_version("state")
    assert kms.unwrap_key(kms.wrap_key(KEY, name), name) == KEY
    gcp.keys[name].disabled.clear()
    assert kms.unwrap_key(blob, name) == KEY


@pytest.mark.parametrize(
    "key_id", ["", "lake", LAKE + "/cryptoKeyVersions/1", LAKE + "\n", "projects//locations/l/keyRings/r/cryptoKeys/k"]
)
def test_what_is_no_key_name_is_not_sent(gcp, key_id):
    kms = client(gcp)
    assert kind(kms.wrap_key, KEY, key_id) is KmsErrorKind.MISSING
    assert kind(kms.unwrap_key, b"blob", key_id) is KmsErrorKind.MISSING
    assert gcp.calls == 0


@pytest.mark.parametrize(
    "fault",
    [StatusCode.RESOURCE_EXHAUSTED, StatusCode.UNAVAILABLE, StatusCode.INTERNAL, StatusCode.DEADLINE_EXCEEDED, StatusCode.ABORTED],
)
def test_a_fault_that_ends_is_survived(gcp, fault):
    kms = client(gcp)
    gcp.faults = [fault, fault]
    blob = kms.wrap_key(KEY, LAKE)
    gcp.faults = [fault, fault]
    assert kms.unwrap_key(blob, LAKE) == KEY
    assert gcp.calls == 6


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (StatusCode.NOT_FOUND, KmsErrorKind.MISSING),
        (StatusCode.FAILED_PRECONDITION, KmsErrorKind.DISABLED),
        (StatusCode.PERMISSION_DENIED, KmsErrorKind.DENIED),
        (StatusCode.UNAUTHENTICATED, KmsErrorKind.DENIED),
        (StatusCode.INVALID_ARGUMENT, KmsErrorKind.FOREIGN),
    ],
)
def test_answers_of_the_service_are_told_apart_and_not_asked_for_again(gcp, status, expected):
    gcp.always = status
    caught = failure(client(gcp).unwrap_key, b"blob", LAKE)
    assert caught.kind is expected
    assert "s3cr3t" not in str(caught)
    assert gcp.calls == 1


def test_throttling_that_stays_ends_within_the_bound(gcp):
    gcp.always = StatusCode.RESOURCE_EXHAUSTED
    caught = failure(client(gcp).wrap_key, KEY, LAKE)
    assert caught.kind is KmsErrorKind.UNAVAILABLE
    assert gcp.calls == 5


def test_a_call_without_an_answer_ends_at_its_time_out(gcp):
    kms = client(gcp, **{"kms.retry.call-timeout-ms": "300"})
    blob = kms.wrap_key(KEY, LAKE)
    gcp.faults = ["silence"]
    assert kms.unwrap_key(blob, LAKE) == KEY
    assert gcp.calls == 3


def test_a_token_that_has_run_out_is_renewed_by_the_library(gcp):
    tokens = iter(["reader"])
    token = Token("writer", lambda: next(tokens))
    ready, channel = gcp_client(gcp.port, token)
    kms = GcpKms({}, client=ready)
    blob = kms.wrap_key(KEY, LAKE)
    token.expiry = dt.datetime(2020, 1, 1)  # noqa: DTZ001 - Google's library has no zones
    assert kms.unwrap_key(blob, LAKE) == KEY
    assert kind(kms.wrap_key, KEY, LAKE) is KmsErrorKind.DENIED
    channel.close()


def test_a_token_that_cannot_be_renewed_is_denied(gcp):
    def renew():
        msg = "invalid_grant: Bad Request"
        raise RefreshError(msg)

    token = Token("writer", renew)
    token.expiry = dt.datetime(2020, 1, 1)  # noqa: DTZ001 - Google's library has no zones
    ready, channel = gcp_client(gcp.port, token)
    assert kind(GcpKms({}, client=ready).wrap_key, KEY, LAKE) is KmsErrorKind.DENIED
    channel.close()
    assert gcp.calls == 0


def test_no_credentials_are_denied(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    caught = failure(load_kms_client({"encryption.kms-type": "gcp"}).wrap_key, KEY, LAKE)
    assert caught.kind is KmsErrorKind.DENIED
    assert "DefaultCredentialsError" in str(caught)


def test_javas_token_property_is_used():
    kms = load_kms_client({"encryption.kms-type": "gcp", "gcs.oauth2.token": "a-token"}).inner
    transport = kms._service().transport
    assert transport._credentials.token == "a-token"
    assert "a-token" not in repr(kms)
    transport.close()
