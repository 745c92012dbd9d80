from __future__ import annotations

import base64
import fcntl
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from icelock.errors import FormatError, IntegrityError, KmsError, KmsErrorKind, PolicyError
from icelock.kms import keyring_file
from icelock.kms.keyring import KeyFileProtection, Keyring, KeyState, PassphraseProtection
from icelock.kms.keyring_file import change_keyring, create_keyring, load_keyring
from icelock.kms.local import LocalKms
from icelock.kms.private_file import file_error
from icelock.kms.unlock import (
    KeyFileUnlocker,
    PassphraseUnlocker,
    RememberingUnlocker,
    make_key_file,
    passphrase_from_environment,
    read_key_file,
)
from icelock.secret import SecretBytes

KEYS = [SecretBytes(bytes([n]) * 32) for n in range(1, 9)]
CHEAP = PassphraseProtection(salt=b"s" * 16, iterations=1, lanes=1, memory_kib=8)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keyring"


@pytest.fixture
def unlocker(tmp_path):
    make_key_file(tmp_path / "key")
    return KeyFileUnlocker(path=tmp_path / "key")


@pytest.fixture
def properties(path, unlocker):
    create_keyring(path, unlocker, Keyring(protection=KeyFileProtection()).added("orders", key=KEYS[0], now_ms=0))
    return {"kms.local.path": str(path), "kms.local.key-file": str(unlocker.path)}


@pytest.fixture
def kms(properties):
    return LocalKms(properties)


@pytest.fixture
def by_passphrase(path, monkeypatch):
    monkeypatch.setenv("ICELOCK_KEYRING_PASSPHRASE", "correct horse")
    keyring = Keyring(protection=CHEAP).added("orders", key=KEYS[0], now_ms=0)
    create_keyring(path, PassphraseUnlocker(read=lambda: "correct horse"), keyring)
    return {"kms.local.path": str(path)}


def raised(call, kind):
    with pytest.raises(KmsError) as caught:
        call()
    assert caught.value.kind is kind
    return caught.value


# wrapping


def test_wraps_as_nonce_ciphertext_tag_under_the_newest_version(kms, path, unlocker):
    change_keyring(path, unlocker, lambda k: k.rotated("orders", key=KEYS[1], now_ms=1))
    blob = kms.wrap_key(b"k" * 16, "orders")
    assert AESGCM(KEYS[1].reveal()).decrypt(blob[:12], blob[12:], None) == b"k" * 16
    assert len(blob) == 12 + 16 + 16


def test_says_which_version_wrapped_a_key(kms, path, unlocker):
    before = kms.wrap_key(b"k" * 16, "orders")
    change_keyring(path, unlocker, lambda k: k.rotated("orders", key=KEYS[1], now_ms=1))
    after = kms.wrap_key(b"k" * 16, "orders")
    assert [kms.wrapped_version(blob, "orders") for blob in (before, after)] == ["1", "2"]
    raised(lambda: kms.wrapped_version(b"x" * 44, "orders"), KmsErrorKind.FOREIGN)


def test_old_versions_still_unwrap_after_rotation(kms, path, unlocker):
    blobs = []
    for n in range(4):
        blobs.append(kms.wrap_key(bytes([n]) * 16, "orders"))
        change_keyring(path, unlocker, partial(Keyring.rotated, key_id="orders", key=KEYS[n + 1], now_ms=n))
    assert [kms.unwrap_key(blob, "orders") for blob in blobs] == [bytes([n]) * 16 for n in range(4)]


def test_a_client_sees_changes_of_another_process_at_once(kms, path, unlocker):
    raised(lambda: kms.wrap_key(b"k" * 16, "new"), KmsErrorKind.MISSING)
    change_keyring(path, unlocker, lambda k: k.added("new", key=KEYS[2], now_ms=0))
    blob = kms.wrap_key(b"k" * 16, "new")
    change_keyring(path, unlocker, lambda k: k.with_state("new", KeyState.DISABLED))
    for call in (partial(kms.wrap_key, b"k" * 16, "new"), partial(kms.unwrap_key, blob, "new")):
        error = raised(call, KmsErrorKind.DISABLED)
        assert error.key_id == "new"
        assert str(path) in str(error)
    change_keyring(path, unlocker, lambda k: k.with_state("new", KeyState.ENABLED))
    assert kms.unwrap_key(blob, "new") == b"k" * 16


def test_foreign_blobs_name_keyring_and_key(kms, path):
    error = raised(lambda: kms.unwrap_key(bytes(44), "orders"), KmsErrorKind.FOREIGN)
    assert str(path) in str(error)
    assert "'orders'" in str(error)


def test_making_a_client_reads_no_file(tmp_path):
    (tmp_path / "no keyring").write_bytes(b"")
    assert repr(LocalKms({"kms.local.path": str(tmp_path / "no keyring")})) == f"LocalKms({str(tmp_path / 'no keyring')!r})"


def test_path_may_start_with_the_home_directory(monkeypatch, tmp_path, properties):
    monkeypatch.setenv("HOME", str(tmp_path))
    kms = LocalKms(properties | {"kms.local.path": "~/keyring", "kms.local.key-file": "~/key"})
    assert kms.unwrap_key(kms.wrap_key(b"k" * 16, "orders"), "orders") == b"k" * 16


def test_path_is_required():
    with pytest.raises(PolicyError, match=r"kms\.local\.path is not set"):
        LocalKms({})


# passphrases


def test_passphrase_comes_from_the_environment(by_passphrase):
    kms = LocalKms(by_passphrase)
    assert kms.unwrap_key(kms.wrap_key(b"k" * 32, "orders"), "orders") == b"k" * 32


def test_passphrase_variable_may_be_named(by_passphrase, monkeypatch):
    monkeypatch.delenv("ICELOCK_KEYRING_PASSPHRASE")
    monkeypatch.setenv("MINE", "correct horse")
    kms = LocalKms(by_passphrase | {"kms.local.passphrase-env": "MINE"})
    assert kms.unwrap_key(kms.wrap_key(b"k" * 32, "orders"), "orders") == b"k" * 32


def test_wrong_passphrase_is_denied_and_the_right_one_works_afterwards(by_passphrase, monkeypatch, path):
    monkeypatch.setenv("ICELOCK_KEYRING_PASSPHRASE", "wrong horse")
    kms = LocalKms(by_passphrase)
    error = raised(lambda: kms.wrap_key(b"k" * 16, "orders"), KmsErrorKind.DENIED)
    assert str(path) in str(error)
    assert "wrong horse" not in str(error)
    monkeypatch.setenv("ICELOCK_KEYRING_PASSPHRASE", "correct horse")
    assert kms.unwrap_key(kms.wrap_key(b"k" * 16, "orders"), "orders") == b"k" * 16


@pytest.mark.parametrize("passphrase", [None, ""])
def test_missing_or_empty_passphrase_is_denied(by_passphrase, monkeypatch, passphrase):
    monkeypatch.delenv("ICELOCK_KEYRING_PASSPHRASE")
    if passphrase is not None:
        monkeypatch.setenv("ICELOCK_KEYRING_PASSPHRASE", passphrase)
    raised(lambda: LocalKms(by_passphrase).wrap_key(b"k" * 16, "orders"), KmsErrorKind.DENIED)


def test_equal_passphrases_in_two_unicode_forms_are_equal():
    composed, decomposed = (PassphraseUnlocker(read=lambda text=text: text) for text in ("caf\u00e9", "cafe\u0301"))
    assert composed.keyring_key(CHEAP) == decomposed.keyring_key(CHEAP)


def test_a_passphrase_of_any_bytes_is_taken(by_passphrase, path, monkeypatch):
    monkeypatch.setitem(os.environb, b"MINE", b"\xff\xfe\x80")
    path.unlink()
    unlocker = PassphraseUnlocker(read=passphrase_from_environment("MINE"))
    create_keyring(path, unlocker, Keyring(protection=CHEAP).added("orders", key=KEYS[0], now_ms=0))
    assert LocalKms(by_passphrase | {"kms.local.passphrase-env": "MINE"}).wrap_key(b"k" * 16, "orders")


def test_keyring_key_is_argon2id():
    # from argon2-cffi 25.1 (the reference C code): password, 16 bytes of salt, t=2, m=256 KiB, p=1, 32 bytes
    protection = PassphraseProtection(salt=b"somesaltsomesalt", iterations=2, lanes=1, memory_kib=256)
    key = PassphraseUnlocker(read=lambda: "password").keyring_key(protection)
    assert key.reveal().hex() == "cab746b4621993fdc91ec50787980b414a90a692f0bc68dfe19f9c25b3cba9ec"


def test_argon2id_runs_once_a_client(by_passphrase):
    asked = []

    class Counting:
        def keyring_key(self, protection):
            asked.append(protection)
            return PassphraseUnlocker(read=lambda: "correct horse").keyring_key(protection)

    unlocker = RememberingUnlocker(Counting())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: load_keyring(Path(by_passphrase["kms.local.path"]), unlocker), range(32)))
    assert len(asked) == 1


# key files


def test_key_file_is_made_with_mode_0600_and_32_random_bytes(tmp_path):
    make_key_file(tmp_path / "k1")
    make_key_file(tmp_path / "k2")
    assert stat.S_IMODE((tmp_path / "k1").stat().st_mode) == 0o600
    assert len(base64.b64decode((tmp_path / "k1").read_bytes())) == 32
    assert read_key_file(tmp_path / "k1") != read_key_file(tmp_path / "k2")


def test_key_file_is_never_overwritten(tmp_path):
    make_key_file(tmp_path / "k")
    with pytest.raises(PolicyError, match="already exists"):
        make_key_file(tmp_path / "k")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_key_file_open_to_others_is_refused_with_a_remedy(kms, tmp_path, mode):
    (tmp_path / "key").chmod(mode)
    error = raised(lambda: kms.wrap_key(b"k" * 16, "orders"), KmsErrorKind.DENIED)
    assert f"chmod 600 {tmp_path / 'key'}" in str(error)


def test_read_only_key_file_is_fine(kms, tmp_path):
    (tmp_path / "key").chmod(0o400)
    assert kms.unwrap_key(kms.wrap_key(b"k" * 16, "orders"), "orders") == b"k" * 16


@pytest.mark.parametrize("text", [b"", b"junk", b"!" * 44, base64.b64encode(b"k" * 16), base64.b64encode(b"k" * 33), b"A" * 100])
def test_key_file_with_something_else_is_a_format_error(tmp_path, text):
    (tmp_path / "k").write_bytes(text)
    (tmp_path / "k").chmod(0o600)
    with pytest.raises(FormatError, match=f"key file {tmp_path / 'k'}"):
        read_key_file(tmp_path / "k")


def test_missing_key_file_is_missing_and_names_the_setting(kms, tmp_path):
    """It does not come by waiting, so no call is repeated."""
    (tmp_path / "key").unlink()
    error = raised(lambda: kms.wrap_key(b"k" * 16, "orders"), KmsErrorKind.MISSING)
    assert f"key file {tmp_path / 'key'}: No such file or directory; correct kms.local.key-file" in str(error)
    assert "gave up" not in str(error)


def test_wrong_key_file_is_denied(kms, tmp_path):
    (tmp_path / "key").unlink()
    make_key_file(tmp_path / "key")
    raised(lambda: kms.wrap_key(b"k" * 16, "orders"), KmsErrorKind.DENIED)


def test_the_other_kind_of_protection_is_denied_with_a_remedy(by_passphrase, path, tmp_path, unlocker):
    error = raised(
        lambda: LocalKms(by_passphrase | {"kms.local.key-file": str(unlocker.path)}).wrap_key(b"k" * 16, "orders"), KmsErrorKind.DENIED
    )
    assert "protected by a passphrase" in str(error)
    other = tmp_path / "other"
    create_keyring(other, unlocker, Keyring(protection=KeyFileProtection()))
    error = raised(lambda: LocalKms({"kms.local.path": str(other)}).wrap_key(b"k" * 16, "orders"), KmsErrorKind.DENIED)
    assert "protected by a key file" in str(error)
    assert path != other


# the file


@pytest.mark.usefixtures("properties")
def test_keyring_is_made_with_mode_0600_and_leaves_no_temporary_file(path, tmp_path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {p.name for p in tmp_path.iterdir()} == {"keyring", "keyring.lock", "key"}


@pytest.mark.usefixtures("properties")
def test_keyring_is_never_overwritten(path, unlocker):
    before = path.read_bytes()
    with pytest.raises(PolicyError, match="already exists"):
        create_keyring(path, unlocker, Keyring(protection=KeyFileProtection()))
    assert path.read_bytes() == before


def test_missing_keyring_is_missing_with_a_remedy(tmp_path):
    error = raised(lambda: LocalKms({"kms.local.path": str(tmp_path / "none")}), KmsErrorKind.MISSING)
    assert f"keyring {tmp_path / 'none'}: No such file or directory; make one with `icelock keyring init`" in str(error)


def test_missing_key_file_is_missing_with_a_remedy(path, tmp_path):
    error = raised(lambda: LocalKms({"kms.local.path": str(path), "kms.local.key-file": str(tmp_path / "none")}), KmsErrorKind.MISSING)
    assert "correct kms.local.key-file" in str(error)


def test_a_keyring_that_is_gone_later_is_missing(kms, path):
    path.unlink()
    error = raised(lambda: kms.wrap_key(b"k" * 16, "orders"), KmsErrorKind.MISSING)
    assert error.key_id == "orders"


def test_missing_rights_are_denied(tmp_path):
    assert file_error(PermissionError(13, "Permission denied"), "keyring", tmp_path).kind is KmsErrorKind.DENIED


def test_changed_keyring_is_an_integrity_error_that_names_the_file(kms, path):
    path.write_bytes(path.read_bytes().replace(b'"created-ms": 0', b'"created-ms": 1'))
    with pytest.raises(IntegrityError, match=f"keyring {path}: .*changed"):
        kms.wrap_key(b"k" * 16, "orders")


@pytest.mark.parametrize("data", [b"", b"{}", b"not a keyring"])
def test_another_file_is_a_format_error_that_names_it(kms, path, data):
    path.write_bytes(data)
    with pytest.raises(FormatError, match=f"keyring {path}: "):
        kms.unwrap_key(bytes(44), "orders")


@pytest.mark.usefixtures("properties")
def test_a_change_that_fails_leaves_the_file_as_it_was(path, unlocker, tmp_path):
    before = path.read_bytes()
    raised(lambda: change_keyring(path, unlocker, lambda k: k.rotated("nobody", key=KEYS[1], now_ms=0)), KmsErrorKind.MISSING)
    assert path.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"keyring", "keyring.lock", "key"}


@pytest.mark.usefixtures("properties")
def test_a_write_that_fails_leaves_the_file_as_it_was(path, unlocker, tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    error = raised(lambda: change_keyring(path, unlocker, lambda k: k.rotated("orders", key=KEYS[1], now_ms=0)), KmsErrorKind.UNAVAILABLE)
    assert "No space left" in str(error)
    assert path.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"keyring", "keyring.lock", "key"}


def test_a_symbolic_link_stays_one(properties, path, unlocker, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(path)
    change_keyring(link, unlocker, lambda k: k.added("more", key=KEYS[1], now_ms=0))
    assert link.is_symlink()
    assert LocalKms(properties).wrap_key(b"k" * 16, "more")


@pytest.mark.usefixtures("properties")
def test_concurrent_changes_are_all_kept(path, unlocker):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: change_keyring(path, unlocker, lambda k: k.added(f"k{n}", key=KEYS[n % 8], now_ms=n)), range(32)))
    assert {key.key_id for key in load_keyring(path, unlocker).keys} == {"orders", *(f"k{n}" for n in range(32))}


def test_a_held_lock_is_waited_for_and_then_unavailable_while_readers_go_on(kms, path, unlocker, monkeypatch):
    monkeypatch.setattr(keyring_file, "_LOCK_WAIT_SECONDS", 0.1)
    with (path.parent / "keyring.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        error = raised(lambda: change_keyring(path, unlocker, lambda k: k), KmsErrorKind.UNAVAILABLE)
        assert "keyring.lock" in str(error)
        assert kms.unwrap_key(kms.wrap_key(b"k" * 16, "orders"), "orders") == b"k" * 16
    change_keyring(path, unlocker, lambda k: k)
