"""``AzureKms`` through the official client library against a double of Key Vault."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.identity import DefaultAzureCredential
from azure.keyvault.keys import KeyClient

from icelock.errors import KmsErrorKind, PolicyError
from icelock.kms.azure import AzureKms
from icelock.kms.loader import load_kms_client
from tests.servers.azure_double import HOST, OAEP, AzureDouble, Credential, DoubleAzureKms, key_client, vault_proxy
from tests.services.kms.service_contract import KEY, NO_WAIT, RotationContract, ServiceContract, failure, kind

THROTTLED = (429, "Throttled", "", "s3cr3t")


def _double(folder) -> Iterator[AzureDouble]:
    with AzureDouble(folder).serving() as serving:
        for name in ("lake", "other"):
            serving.add_version(name)
        yield serving


@pytest.fixture(scope="module")
def azure(tmp_path_factory) -> Iterator[AzureDouble]:
    yield from _double(tmp_path_factory.mktemp("azure"))


@pytest.fixture(scope="module")
def other_azure(tmp_path_factory) -> Iterator[AzureDouble]:
    yield from _double(tmp_path_factory.mktemp("other-azure"))


@pytest.fixture(autouse=True)
def _as_new(azure):
    yield
    azure.faults, azure.always = [], None
    azure.requests.clear()
    azure.revoked.clear()


def settings(double, token="writer"):
    return {
        "encryption.kms-impl": "tests.servers.azure_double.DoubleAzureKms",
        "kms.double.url": double.url,
        "kms.double.ca": str(double.ca),
        "kms.double.token": token,
        **NO_WAIT,
    }


def client(double, token="writer"):
    return load_kms_client(settings(double, token))


class TestContract(ServiceContract, RotationContract):
    test_a_spark_job_asks_the_service_once = None  # the driver asks whichever client it has: on AWS, a keystore and PKCS#11

    @pytest.fixture
    def properties(self, azure):
        return settings(azure)

    @pytest.fixture
    def other_properties(self, other_azure):
        return settings(other_azure)

    @pytest.fixture
    def broken(self):
        return {"kms.double.url": "https://localhost:1"}

    @pytest.fixture
    def key_id(self):
        return "lake"

    @pytest.fixture
    def other_key_id(self):
        return "other"

    @pytest.fixture
    def rotate(self, azure):
        return lambda: azure.add_version("lake")


def test_blob_is_the_raw_rsa_output(azure):
    blob = client(azure).wrap_key(KEY, "other")
    assert len(blob) == 256
    assert azure.keys["other"].versions[0].key.decrypt(blob, OAEP) == KEY


def test_wrap_and_unwrap_are_one_request_each_and_no_key_is_asked_for(azure):
    kms = client(azure)
    assert kms.unwrap_key(kms.wrap_key(KEY, "other"), "other") == KEY
    assert azure.requests == ["/keys/other/wrapkey", "/keys/other/unwrapkey"]


def test_a_version_can_be_named(azure):
    azure.add_version("versions")
    kms = client(azure)
    old = kms.wrap_key(KEY, "versions")
    first = azure.keys["versions"].versions[0].name
    azure.add_version("versions")
    azure.requests.clear()
    assert kms.unwrap_key(old, f"versions/{first}") == KEY
    assert azure.requests == [f"/keys/versions/{first}/unwrapkey"]


def test_after_a_rotation_a_reader_needs_to_list_or_the_version(azure):
    azure.add_version("rotated")
    old = client(azure).wrap_key(KEY, "rotated")
    azure.add_version("rotated")
    assert client(azure, "lister").unwrap_key(old, "rotated") == KEY
    caught = failure(client(azure, "reader").unwrap_key, old, "rotated")
    assert caught.kind is KmsErrorKind.FOREIGN
    assert "name/version" in str(caught)
    assert client(azure, "reader").unwrap_key(old, f"rotated/{azure.keys['rotated'].versions[0].name}") == KEY


def test_versions_that_cannot_be_listed_now_are_listed_later(azure):
    azure.add_version("listed")
    kms = client(azure)
    old = kms.wrap_key(KEY, "listed")
    azure.add_version("listed")
    azure.faults = [None, THROTTLED]
    assert kms.unwrap_key(old, "listed") == KEY


def test_a_reader_unwraps_and_is_denied_to_wrap(azure):
    blob = client(azure).wrap_key(KEY, "other")
    reader = client(azure, "reader")
    assert reader.unwrap_key(blob, "other") == KEY
    caught = failure(reader.wrap_key, KEY, "other")
    assert caught.kind is KmsErrorKind.DENIED
    assert "key permission wrapKey" in str(caught)


def test_a_disabled_key_and_a_deleted_one_are_disabled(azure):
    azure.add_version("state")
    kms = client(azure)
    blob = kms.wrap_key(KEY, "state")
    azure.keys["state"].versions[0].enabled = False
    assert kind(kms.wrap_key, KEY, "state") is KmsErrorKind.DISABLED
    assert kind(kms.unwrap_key, blob, "state") is KmsErrorKind.DISABLED
    azure.keys["state"].versions[0].enabled = True
    azure.keys["state"].is_deleted = True
    assert kind(kms.unwrap_key, blob, "state") is KmsErrorKind.DISABLED
    azure.keys["state"].is_deleted = False
    assert kms.unwrap_key(blob, "state") == KEY


def test_a_wrong_algorithm_cannot_be_used(azure):
    kms = load_kms_client(settings(azure) | {"azure.keyvault.key-wrap-algorithm": "RSA-OAEP"})
    assert kind(kms.wrap_key, KEY, "lake") is KmsErrorKind.DISABLED


@pytest.mark.parametrize("key_id", ["", "../secrets/x", "a/b/c", "a?b", "a#", "https://evil.example/keys/a", "a_b", "a%2Fb"])
def test_an_id_that_leads_elsewhere_is_not_sent(azure, key_id):
    kms = client(azure)
    assert kind(kms.wrap_key, KEY, key_id) is KmsErrorKind.MISSING
    assert kind(kms.unwrap_key, b"x" * 256, key_id) is KmsErrorKind.MISSING
    assert azure.requests == []


@pytest.mark.parametrize("fault", [THROTTLED, (500, "InternalError"), (503, "Unavailable"), (408, "Timeout"), "drop", "garbage"])
def test_a_fault_that_ends_is_survived(azure, fault):
    kms = client(azure)
    azure.faults = [fault, fault]
    blob = kms.wrap_key(KEY, "lake")
    azure.faults = [fault, fault]
    assert kms.unwrap_key(blob, "lake") == KEY
    assert len(azure.requests) == 6


def test_throttling_that_stays_ends_within_the_bound(azure):
    azure.always = THROTTLED
    caught = failure(client(azure).wrap_key, KEY, "lake")
    assert caught.kind is KmsErrorKind.UNAVAILABLE
    assert "429 Throttled" in str(caught)
    assert "s3cr3t" not in str(caught)
    assert len(azure.requests) == 5


def test_a_call_without_an_answer_ends_at_its_time_out(azure):
    with key_client(azure.url, str(azure.ca), Credential("writer"), timeout=0.3) as ready:
        kms = AzureKms({}, client=ready)
        kms.wrap_key(KEY, "lake")
        azure.faults = ["silence"]
        assert kind(kms.wrap_key, KEY, "lake") is KmsErrorKind.UNAVAILABLE


def test_a_token_that_was_revoked_is_renewed_within_the_call(azure):
    credential = Credential("writer")
    with key_client(azure.url, str(azure.ca), credential) as ready:
        kms = AzureKms({}, client=ready)
        blob = kms.wrap_key(KEY, "lake")
        azure.revoked.add("writer")
        credential.token = "reader"
        assert kms.unwrap_key(blob, "lake") == KEY
        assert credential.asked == 2
        azure.revoked.add("reader")
        assert kind(kms.unwrap_key, blob, "lake") is KmsErrorKind.DENIED


def test_no_credentials_are_denied(azure, monkeypatch):
    """Default credentials, of which only the environment is asked here."""
    for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET", "AZURE_USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    with key_client(azure.url, str(azure.ca), DefaultAzureCredential()) as ready:
        caught = failure(AzureKms({}, client=ready).wrap_key, KEY, "lake")
    assert caught.kind is KmsErrorKind.DENIED
    assert "ClientAuthenticationError" in str(caught)


def test_a_token_is_given_to_a_vault_in_azures_domain(azure):
    """The client looks at the domain itself, which is why the double is reached by a proxy here."""
    credential = Credential("writer")
    with vault_proxy(azure) as port, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        patch.setenv("REQUESTS_CA_BUNDLE", str(azure.ca))
        with KeyClient(f"https://{HOST}", credential, retry_total=0) as ready:
            kms = AzureKms({}, client=ready)
            assert kms.unwrap_key(kms.wrap_key(KEY, "lake"), "lake") == KEY
    assert credential.asked == 1


def test_no_token_is_given_to_a_server_outside_azure(azure, monkeypatch):
    """The client that the properties make looks at the domain."""
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(azure.ca))
    kms = load_kms_client({"encryption.kms-type": "azure", "azure.keyvault.url": azure.url})
    caught = failure(kms.wrap_key, KEY, "lake")
    kms.inner._client.close()
    assert caught.kind is KmsErrorKind.DENIED
    assert "not of a key vault in its domain" in str(caught)
    assert azure.requests == []


def test_a_server_whose_certificate_is_not_trusted_is_unavailable(azure, monkeypatch):
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    url = azure.url.replace("localhost", "127.0.0.1")  # the library remembers what a server it has met asked for
    kms = load_kms_client({"encryption.kms-type": "azure", "azure.keyvault.url": url, "kms.retry.attempts": "1"})
    assert kind(kms.wrap_key, KEY, "lake") is KmsErrorKind.UNAVAILABLE
    kms.inner._client.close()
    assert azure.requests == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"azure\.keyvault\.url is ''"),
        ({"azure.keyvault.url": "http://lake.vault.azure.net"}, r"azure\.keyvault\.url is 'http:"),
        ({"azure.keyvault.url": "https://x", "azure.keyvault.key-wrap-algorithm": "AES"}, "must be one of RSA-OAEP-256"),
    ],
)
def test_wrong_settings_are_refused(given, message):
    with pytest.raises(PolicyError, match=message):
        load_kms_client({"encryption.kms-type": "azure", **given})


def test_double_is_made_from_properties_alone(azure):
    kms = DoubleAzureKms(settings(azure))
    assert kms.unwrap_key(kms.wrap_key(KEY, "lake"), "lake") == KEY
