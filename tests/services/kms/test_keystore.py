"""``KeystoreKms`` on keystores that the JDK's keytool made."""

from __future__ import annotations

import re
import shutil
import traceback
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from icelock.errors import FormatError, KmsError, KmsErrorKind, PolicyError
from icelock.kms.keystore import KeystoreKms
from icelock.kms.loader import load_kms_client
from tests.helpers.keystores import PASSWORD, SECRET, add_key, java, keytool
from tests.services.kms.service_contract import KEY, ServiceContract, failure, kind, lake, new_table


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Two keystores: in ``ours`` keys of every length, a key that is too long, a key pair; in ``theirs`` another ``lake``."""
    folder = tmp_path_factory.mktemp("keystores")
    for alias, size in (("Lake", "128"), ("other", "192"), ("long", "256")):
        add_key(folder / "ours.p12", alias, "-keyalg", "AES", "-keysize", size)
    add_key(folder / "ours.p12", "hmac", "-keyalg", "HmacSHA512", "-keysize", "512")
    keytool("-genkeypair", "-alias", "pair", "-keyalg", "EC", "-dname", "CN=x", "-keystore", folder / "ours.p12", *SECRET)
    add_key(folder / "theirs.p12", "lake")
    return folder


@pytest.fixture
def store(made, tmp_path) -> Path:
    return Path(shutil.copy(made / "ours.p12", tmp_path / "store.p12"))


@pytest.fixture(autouse=True)
def _password(monkeypatch):
    monkeypatch.setenv("KEYSTORE_PASSWORD", PASSWORD)


@pytest.fixture
def settings(store) -> dict[str, str]:
    return {"encryption.kms-type": "keystore", "kms.client.keystore.path": str(store), "kms.retry.attempts": "1"}


class TestContract(ServiceContract):
    SNAPSHOTS = 40

    @pytest.fixture
    def properties(self, settings):
        return settings

    @pytest.fixture
    def other_properties(self, settings, made):
        return settings | {"kms.client.keystore.path": str(made / "theirs.p12")}

    @pytest.fixture
    def broken(self, tmp_path):
        return {"kms.client.keystore.path": str(tmp_path / "gone.p12")}

    def test_a_commit_without_the_service_leaves_nothing_behind(self, properties, broken, key_id, tmp_path):
        """A keystore that is not there fails before anything is asked for."""
        new_table(tmp_path / "lake", properties, key_id)
        before = {path: path.read_bytes() for path in (tmp_path / "lake" / "db").rglob("*") if path.is_file()}
        assert before
        with pytest.raises(KmsError, match=r"gone\.p12") as caught:
            lake(tmp_path / "lake", {**properties, **broken})
        assert caught.value.kind is KmsErrorKind.MISSING
        assert {path: path.read_bytes() for path in (tmp_path / "lake" / "db").rglob("*") if path.is_file()} == before

    @pytest.fixture
    def key_id(self):
        return "lake"

    @pytest.fixture
    def other_key_id(self):
        return "other"

    @pytest.fixture
    def secrets(self):
        return [PASSWORD.encode()]


def test_aliases_are_lower_case_as_in_java(settings):
    kms = load_kms_client(settings)
    assert kms.unwrap_key(kms.wrap_key(KEY, "LAKE"), "Lake") == KEY


@pytest.mark.parametrize("key_id", ["lake", "other", "long"])
def test_keys_of_every_length_work(settings, key_id):
    kms = load_kms_client(settings)
    assert kms.unwrap_key(kms.wrap_key(KEY, key_id), key_id) == KEY


def test_blob_is_nonce_ciphertext_tag_under_the_imported_key(settings, store, tmp_path):
    """A secret key whose bytes are known, put into a keystore by Java: the layout is that of Java's client."""
    source = tmp_path / "Put.java"
    source.write_text(
        """
        import java.io.*; import java.security.KeyStore; import javax.crypto.spec.SecretKeySpec;
        class Put { public static void main(String[] a) throws Exception {
            char[] p = System.getenv("KEYSTORE_PASSWORD").toCharArray(); KeyStore s = KeyStore.getInstance("PKCS12");
            try (var in = new FileInputStream(a[0])) { s.load(in, p); }
            var key = new KeyStore.SecretKeyEntry(new SecretKeySpec("0123456789012345".getBytes(), "AES"));
            s.setEntry("known", key, new KeyStore.PasswordProtection(p));
            try (var out = new FileOutputStream(a[0])) { s.store(out, p); } } }
        """
    )
    java(source, store)
    kms = KeystoreKms(settings, random_bytes=lambda n: b"n" * n)
    assert kms.wrap_key(KEY, "known") == b"n" * 12 + AESGCM(b"0123456789012345").encrypt(b"n" * 12, KEY, None)


def test_a_missing_alias_names_those_that_are_there(settings):
    error = failure(load_kms_client(settings).wrap_key, KEY, "typo")
    assert error.kind is KmsErrorKind.MISSING
    assert "'hmac', 'lake', 'long', 'other'" in str(error)


def test_a_key_pair_is_no_master_key(settings):
    assert kind(load_kms_client(settings).wrap_key, KEY, "pair") is KmsErrorKind.MISSING


def test_a_key_of_another_length_cannot_be_used(settings):
    error = failure(load_kms_client(settings).wrap_key, KEY, "hmac")
    assert error.kind is KmsErrorKind.DISABLED
    assert "64 bytes" in str(error)


def test_a_wrong_password_is_denied_and_not_shown(settings, monkeypatch):
    monkeypatch.setenv("KEYSTORE_PASSWORD", "s3cr3t-but-wrong")
    error = failure(load_kms_client(settings).unwrap_key, b"x" * 44, "lake")
    assert error.kind is KmsErrorKind.DENIED
    assert "s3cr3t" not in "".join(traceback.format_exception(error))


def test_no_password_is_denied_and_another_variable_can_hold_it(settings, monkeypatch):
    monkeypatch.delenv("KEYSTORE_PASSWORD")
    assert "KEYSTORE_PASSWORD is not set" in str(failure(load_kms_client(settings).wrap_key, KEY, "lake"))
    monkeypatch.setenv("LAKE_PASSWORD", PASSWORD)
    kms = load_kms_client({**settings, "kms.client.keystore.password-env": "LAKE_PASSWORD"})
    assert kms.unwrap_key(kms.wrap_key(KEY, "lake"), "lake") == KEY


def test_a_keystore_that_is_not_there_is_unavailable(settings, store):
    store.unlink()
    with pytest.raises(KmsError, match=re.escape(str(store))) as caught:
        load_kms_client(settings)
    assert caught.value.kind is KmsErrorKind.MISSING


def test_a_changed_keystore_is_noticed(settings, store):
    """The MAC covers the content; the rest is the MAC itself and DER. Sixty positions over the file."""
    data = store.read_bytes()
    blob = load_kms_client(settings).wrap_key(KEY, "lake")
    for position in range(0, len(data), max(1, len(data) // 60)):
        store.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises((FormatError, KmsError)) as caught:
            load_kms_client(settings).unwrap_key(blob, "lake")
        assert isinstance(caught.value, FormatError) or caught.value.kind is KmsErrorKind.DENIED


@pytest.mark.parametrize("data", [b"", b"\x30\x00", b"not a keystore", b"\xfe\xed\xfe\xed\x00\x00\x00\x02" + b"\x00" * 40])
def test_other_files_are_a_format_error(settings, store, data):
    store.write_bytes(data)
    with pytest.raises(FormatError, match=r"store\.p12.*'lake'.*PKCS#12"):
        load_kms_client(settings).wrap_key(KEY, "lake")


def test_a_keystore_of_java_8_is_refused_with_the_way_out(settings, tmp_path):
    old = tmp_path / "old.p12"
    properties = ("-J-Dkeystore.pkcs12.legacy=true", "-storetype", "PKCS12", "-keystore", old, *SECRET)
    keytool("-genseckey", "-alias", "lake", "-keyalg", "AES", "-keysize", "128", *properties)
    with pytest.raises(FormatError, match="importkeystore of JDK 17"):
        load_kms_client({**settings, "kms.client.keystore.path": str(old)}).wrap_key(KEY, "lake")


def test_a_path_is_needed():
    with pytest.raises(PolicyError, match=r"kms\.client\.keystore\.path is not set"):
        load_kms_client({"encryption.kms-type": "keystore"})
