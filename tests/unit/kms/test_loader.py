from __future__ import annotations

import sys

import pytest

from icelock.errors import PolicyError
from icelock.kms.loader import load_kms_client
from icelock.kms.local import LocalKms
from icelock.kms.memory import MemoryKms
from icelock.kms.retry import RetryingKms, RetryPolicy
from tests.unit.kms.user_kms import VersionedKms

MEMORY = {"encryption.kms-type": "memory", "kms.memory.keys.keyA": "00" * 16}
LOCAL = {"encryption.kms-type": "local", "kms.local.path": __file__}  # any file that is there
USERS = "tests.unit.kms.user_kms"

both = pytest.mark.parametrize("load", [load_kms_client])


@both
@pytest.mark.parametrize("properties", [{}, {"uri": "sqlite://", "kms.endpoint": "http://x"}])
def test_no_choice_is_no_client(load, properties):
    assert load(properties) is None


@pytest.mark.parametrize(
    ("properties", "kind"),
    [(MEMORY, MemoryKms), (LOCAL, LocalKms), ({"encryption.kms-impl": f"{USERS}.VersionedKms", "kms.anything": "goes"}, VersionedKms)],
    ids=["memory", "local", "users"],
)
def test_makes_the_chosen_client_with_retries_around_it(properties, kind):
    client = load_kms_client(properties)
    assert isinstance(client, RetryingKms)
    assert isinstance(client.inner, kind)


def test_py_kms_impl_names_a_users_class_too():
    assert isinstance(load_kms_client({"py-kms-impl": f"{USERS}.VersionedKms"}).inner, VersionedKms)


def test_users_class_gets_all_properties():
    client = load_kms_client({"encryption.kms-impl": f"{USERS}.VersionedKms", "my-kms.keys.k": "00" * 16})
    assert client.unwrap_key(client.wrap_key(b"x" * 16, "k"), "k") == b"x" * 16


def test_retry_settings_reach_the_client():
    given = {"kms.retry.attempts": "2", "kms.retry.min-wait-ms": "7", "kms.retry.max-wait-ms": 8, "kms.retry.total-timeout-ms": "9"}
    expected = RetryPolicy(attempts=2, min_wait_ms=7, max_wait_ms=8, total_timeout_ms=9)
    assert repr(expected) in repr(load_kms_client(MEMORY | given))


@both
@pytest.mark.parametrize(
    "properties",
    [
        {"encryption.kms-type": "memory", "encryption.kms-impl": f"{USERS}.VersionedKms"},
        {"encryption.kms-type": "memory", "py-kms-impl": f"{USERS}.VersionedKms"},
        {"encryption.kms-impl": f"{USERS}.VersionedKms", "py-kms-impl": f"{USERS}.VersionedKms"},
    ],
)
def test_two_choices_exclude_each_other(load, properties):
    with pytest.raises(PolicyError, match="exclude each other"):
        load(properties)


@both
@pytest.mark.parametrize(
    ("kms_type", "library"),
    [
        ("aws", "botocore"),
        ("azure", "azure.core"),
        ("gcp", "google.api_core"),
        ("keystore", "asn1crypto"),
        ("pkcs11", "pkcs11"),
        ("vault", "hvac"),
    ],
)
def test_a_service_whose_extra_is_not_installed_names_it(load, kms_type, library, monkeypatch):
    monkeypatch.delitem(sys.modules, f"icelock.kms.{kms_type}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(PolicyError, match=rf"needs {library}, which is not installed: .* pip install '.\[{kms_type}\]'"):
        load({"encryption.kms-type": kms_type})


@both
@pytest.mark.parametrize(
    ("kms_type", "hint"),
    [
        ("Memory", "mean 'memory'"),
        ("memroy", "mean 'memory'"),
        ("locl", "mean 'local'"),
        (" local", "mean 'local'"),
        ("", "known: memory, local, aws, azure, gcp, vault, keystore, pkcs11"),
    ],
)
def test_unknown_types_are_refused_with_the_nearest(load, kms_type, hint):
    with pytest.raises(PolicyError, match=hint):
        load({"encryption.kms-type": kms_type})


@both
@pytest.mark.parametrize(
    ("properties", "hint"),
    [
        (MEMORY | {"kms.memory.key.keyB": "00" * 16}, r"mean 'kms\.memory\.keys\.<key id>'"),
        (MEMORY | {"kms.memory.kyes.a-much-longer-key-id-than-the-prefix-itself": "00" * 16}, r"mean 'kms\.memory\.keys\.<key id>'"),
        (MEMORY | {"KMS.Memory.Keys.keyB": "00" * 16}, r"mean 'kms\.memory\.keys\.<key id>'"),
        (LOCAL | {"kms.local.pth": "x"}, r"mean 'kms\.local\.path'"),
        (LOCAL | {"kms.local.keyfile": "x"}, r"mean 'kms\.local\.key-file'"),
        (LOCAL | {"kms.local.passphrase_env": "x"}, r"mean 'kms\.local\.passphrase-env'"),
        (LOCAL | {"kms.local.passphrase": "x"}, r"mean 'kms\.local\.passphrase-env'"),
        (LOCAL | {"kms_local_path": "x"}, r"mean 'kms\.local\.path'"),
        (MEMORY | {"kms.nothing-like-it": "x"}, r"known: kms\.memory\.keys\.<key id>, kms\.retry\.attempts"),
        (MEMORY | {"kms.retry.attempt": "3"}, r"mean 'kms\.retry\.attempts'"),
        ({"encryption.kms-impl": f"{USERS}.VersionedKms", "kms.retry.atempts": "3"}, r"mean 'kms\.retry\.attempts'"),
        (MEMORY | {"kms.endpoint": "http://x"}, "belongs to encryption.kms-type = 'aws'"),
        (MEMORY | {"kms.local.path": "x"}, "belongs to encryption.kms-type = 'local'"),
        (LOCAL | {"kms.memory.keys.keyA": "00" * 16}, "belongs to encryption.kms-type = 'memory'"),
    ],
)
def test_misspelt_and_misplaced_settings_are_refused(load, properties, hint):
    with pytest.raises(PolicyError, match=hint):
        load(properties)


@both
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (MEMORY | {"kms.memory.keys.keyB": "junk"}, "kms.memory.keys.keyB: expected 32, 48 or 64 hex digits"),
        ({"encryption.kms-type": "local"}, "kms.local.path is not set"),
        (LOCAL | {"kms.local.key-file": "k", "kms.local.passphrase-env": "P"}, "exclude each other"),
        (MEMORY | {"kms.retry.attempts": "many"}, "kms.retry.attempts is 'many'"),
        (MEMORY | {"kms.retry.attempts": "0"}, "must be 1 or more"),
        (MEMORY | {"kms.retry.max-wait-ms": "-1"}, "must be 0 or more"),
        (MEMORY | {"kms.retry.call-timeout-ms": "0"}, "must be 1 or more"),
        (MEMORY | {"kms.retry.min-wait-ms": "9000"}, r"above kms\.retry\.max-wait-ms"),
    ],
)
def test_wrong_values_are_refused_at_once(load, properties, message):
    with pytest.raises(PolicyError, match=message):
        load(properties)


@both
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("VersionedKms", "must be the dotted path"),
        ("", "must be the dotted path"),
        ("a..B", "must be the dotted path"),
        (f"{USERS}:VersionedKms", "must be the dotted path"),
        ("org.apache.iceberg.aws.AwsKeyManagementClient", "module 'org.apache.iceberg.aws' cannot be imported"),
        (f"{USERS}.NoSuchKms", "'NoSuchKms' in 'tests.unit.kms.user_kms' has no such name"),
        (f"{USERS}.not_a_class", "expected a class, 'not_a_class' in 'tests.unit.kms.user_kms' is a function"),
        (f"{USERS}.WithoutUnwrap", "the class lacks unwrap_key"),
        ("builtins.dict", "the class lacks wrap_key and unwrap_key"),
    ],
)
def test_classes_that_cannot_be_used_are_refused(load, path, message):
    with pytest.raises(PolicyError, match=message):
        load({"encryption.kms-impl": path})


@pytest.mark.parametrize(("name", "error"), [("Refusing", "RuntimeError"), ("WithoutArguments", "TypeError")])
def test_constructor_that_fails_is_named_and_its_text_kept_back(name, error):
    with pytest.raises(PolicyError, match=f"{name}.*failed with {error}") as caught:
        load_kms_client({"encryption.kms-impl": f"{USERS}.{name}"})
    assert "s3cr3t" not in str(caught.value)
    assert type(caught.value.__cause__).__name__ == error
