"""``Pkcs11Kms`` against SoftHSM, with keys made and changed by another process, as an HSM's tools would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pkcs11
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pkcs11 import exceptions

from icelock.errors import KmsErrorKind, PolicyError
from icelock.kms.loader import load_kms_client
from icelock.kms.pkcs11 import Pkcs11Kms
from tests.services.kms.service_contract import KEY, NO_WAIT, RotationContract, ServiceContract, failure, kind

# python-pkcs11 complains of a search in a session that the token has ended, on top of the error that it raises.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. 'pkcs11._pkcs11.OperationContext")
LIBRARIES = ("/usr/lib/softhsm/libsofthsm2.so", "/usr/lib64/softhsm/libsofthsm2.so", "/opt/homebrew/lib/softhsm/libsofthsm2.so")
PIN = "5678-of-the-test"
ADMIN = """
import sys
import pkcs11
from pkcs11 import Attribute, KeyType, ObjectClass
library, token, pin, label, key_id, can_encrypt, can_decrypt, value = sys.argv[1:]
with pkcs11.lib(library).get_token(token_label=token).open(rw=True, user_pin=pin) as session:
    may = {Attribute.ENCRYPT: can_encrypt == "1", Attribute.DECRYPT: can_decrypt == "1"}
    if value:
        known = {Attribute.CLASS: ObjectClass.SECRET_KEY, Attribute.KEY_TYPE: KeyType.AES, Attribute.VALUE: bytes.fromhex(value)}
        session.create_object({**known, **may, Attribute.LABEL: label, Attribute.ID: bytes.fromhex(key_id), Attribute.TOKEN: True})
    else:
        session.generate_key(KeyType.AES, 256, label=label, id=bytes.fromhex(key_id), store=True, template=may)
"""


@dataclass(frozen=True)
class Hsm:
    """SoftHSM with the tokens ``lake`` and ``other``, each with the keys ``lake-key`` and ``other-key``."""

    library: str

    def add(  # noqa: PLR0913 - what a key may is said in one call
        self, label: str, key_id: str, *, token: str = "lake", encrypt: bool = True, decrypt: bool = True, value: bytes = b""
    ) -> None:
        rights = (str(int(encrypt)), str(int(decrypt)))
        command = (sys.executable, "-c", ADMIN, self.library, token, PIN, label, key_id, *rights, value.hex())
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    @property
    def settings(self) -> dict[str, str]:
        return {"encryption.kms-type": "pkcs11", "kms.pkcs11.library": self.library, "kms.pkcs11.token-label": "lake"}


@pytest.fixture(scope="module")
def hsm(tmp_path_factory) -> Iterator[Hsm]:
    library = next((path for path in LIBRARIES if Path(path).exists()), None)
    if library is None or shutil.which("softhsm2-util") is None:
        pytest.skip("SoftHSM is missing: the PKCS#11 tests need it (on Debian: apt-get install softhsm2)")
    folder = tmp_path_factory.mktemp("softhsm")
    (folder / "tokens").mkdir()
    (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder}/tokens\nobjectstore.backend = file\nlog.level = ERROR\n")
    with patch.dict(os.environ, {"SOFTHSM2_CONF": str(folder / "softhsm2.conf")}):
        started = Hsm(library)
        for token in ("lake", "other"):
            command = ("softhsm2-util", "--init-token", "--free", "--label", token, "--so-pin", "1234", "--pin", PIN)
            subprocess.run(command, check=True, capture_output=True)
            for label in ("lake-key", "other-key"):
                started.add(label, "01", token=token)
        yield started
        pkcs11.unload(library)


@pytest.fixture(autouse=True)
def _pin(monkeypatch):
    monkeypatch.setenv("ICELOCK_PKCS11_PIN", PIN)


@pytest.fixture(autouse=True)
def _logged_out(hsm) -> Iterator[None]:
    """A login is the process's, so each test begins without one."""
    yield
    pkcs11.lib(hsm.library).reinitialize()


class TestContract(ServiceContract, RotationContract):
    @pytest.fixture
    def properties(self, hsm):
        return hsm.settings

    @pytest.fixture
    def other_properties(self, hsm):
        return hsm.settings | {"kms.pkcs11.token-label": "other"}

    @pytest.fixture
    def broken(self):
        return {"kms.pkcs11.token-label": "unplugged"}

    @pytest.fixture
    def key_id(self):
        return "lake-key"

    @pytest.fixture
    def other_key_id(self):
        return "other-key"

    @pytest.fixture
    def rotate(self, hsm):
        versions = iter(range(2, 100))
        return lambda: hsm.add("lake-key", f"{next(versions):02x}")

    @pytest.fixture
    def secrets(self):
        return [PIN.encode()]


def client(settings, **more):
    return load_kms_client({**settings, **NO_WAIT, **more})


def test_blob_is_nonce_ciphertext_tag_under_a_known_key(hsm):
    hsm.add("known", "01", value=b"0123456789012345")
    kms = Pkcs11Kms(hsm.settings, random_bytes=lambda n: b"n" * n)
    expected = b"n" * 12 + AESGCM(b"0123456789012345").encrypt(b"n" * 12, KEY, None)
    assert kms.wrap_key(KEY, "known") == expected
    assert kms.unwrap_key(expected, "known") == KEY


def test_the_greatest_id_wraps(hsm):
    values = {"02": b"2" * 16, "0100": b"A" * 16, "ff": b"f" * 16}
    for key_id, value in values.items():
        hsm.add("ordered", key_id, value=value)
    blob = client(hsm.settings).wrap_key(KEY, "ordered")
    assert AESGCM(b"A" * 16).decrypt(blob[:12], blob[12:], None) == KEY


def test_a_missing_label_is_missing(hsm):
    assert kind(client(hsm.settings).wrap_key, KEY, "typo") is KmsErrorKind.MISSING


def test_a_key_that_may_not_is_disabled(hsm):
    hsm.add("reading", "01", encrypt=False, value=b"r" * 16)
    hsm.add("writing", "01", decrypt=False)
    kms = client(hsm.settings)
    blob = b"n" * 12 + AESGCM(b"r" * 16).encrypt(b"n" * 12, KEY, None)
    assert kms.unwrap_key(blob, "reading") == KEY
    assert kind(kms.unwrap_key, blob[:-1], "reading") is KmsErrorKind.FOREIGN
    assert kind(kms.wrap_key, KEY, "reading") is KmsErrorKind.DISABLED
    assert kind(kms.unwrap_key, kms.wrap_key(KEY, "writing"), "writing") is KmsErrorKind.DISABLED


def test_a_wrong_pin_is_denied_and_not_shown(hsm, monkeypatch):
    monkeypatch.setenv("ICELOCK_PKCS11_PIN", "s3cr3t-but-wrong")
    caught = failure(client(hsm.settings).wrap_key, KEY, "lake-key")
    assert caught.kind is KmsErrorKind.DENIED
    assert "s3cr3t" not in "".join(traceback.format_exception(caught))


def test_the_pin_comes_from_a_file_or_a_named_variable(hsm, monkeypatch, tmp_path):
    monkeypatch.delenv("ICELOCK_PKCS11_PIN")
    assert "ICELOCK_PKCS11_PIN is not set" in str(failure(client(hsm.settings).wrap_key, KEY, "lake-key"))
    monkeypatch.setenv("LAKE_PIN", PIN)
    blob = client(hsm.settings, **{"kms.pkcs11.pin-env": "LAKE_PIN"}).wrap_key(KEY, "lake-key")
    with_file = client(hsm.settings, **{"kms.pkcs11.pin-file": str(tmp_path / "pin")})
    assert kind(with_file.unwrap_key, blob, "lake-key") is KmsErrorKind.DENIED
    (tmp_path / "pin").write_bytes(b"a\nb\n")
    assert "not one line" in str(failure(with_file.unwrap_key, blob, "lake-key"))
    (tmp_path / "pin").write_text(PIN + "\n")
    assert with_file.unwrap_key(blob, "lake-key") == KEY


@pytest.mark.parametrize("given", [{"kms.pkcs11.library": "/nonexistent.so"}, {"kms.pkcs11.token-label": "unplugged"}])
def test_no_library_and_no_token_are_unavailable(hsm, given):
    caught = failure(client(hsm.settings, **given).wrap_key, KEY, "lake-key")
    assert caught.kind is KmsErrorKind.UNAVAILABLE
    assert "gave up after 5 calls" in str(caught)


def test_a_session_that_the_token_ended_is_opened_again_within_the_call(hsm):
    kms = client(hsm.settings, **{"kms.retry.attempts": "1"})
    blob = kms.wrap_key(KEY, "lake-key")
    pkcs11.lib(hsm.library).reinitialize()
    assert kms.unwrap_key(blob, "lake-key") == KEY


def test_two_clients_of_one_token_share_its_login_and_outlive_each_other(hsm):
    first, second = client(hsm.settings), client(hsm.settings)
    blob = first.wrap_key(KEY, "lake-key")
    assert second.unwrap_key(blob, "lake-key") == KEY
    session = first.inner._session
    session.close()  # logs out
    assert second.unwrap_key(blob, "lake-key") == KEY
    assert first.unwrap_key(blob, "lake-key") == KEY


class _Failing:
    """A session whose key does what it is told to."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = 0

    def get_objects(self, _template):
        return [self]

    def __getitem__(self, _attribute):
        return b"\x01"

    def encrypt(self, data, **_):
        return data + b"t" * 16

    def decrypt(self, _data, **_):
        self.calls += 1
        error = self.errors.pop(0)
        if error is not None:
            raise error
        return KEY


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([exceptions.GeneralError(), None], KmsErrorKind.FOREIGN),  # the probe opens: it was the blob
        ([exceptions.GeneralError(), exceptions.GeneralError()], KmsErrorKind.UNAVAILABLE),  # nothing opens: it is the token
        ([exceptions.EncryptedDataInvalid()], KmsErrorKind.FOREIGN),
        ([exceptions.DeviceError()], KmsErrorKind.UNAVAILABLE),
        ([exceptions.DeviceRemoved(), exceptions.DeviceRemoved()], KmsErrorKind.UNAVAILABLE),
        ([exceptions.SessionCount()], KmsErrorKind.UNAVAILABLE),
        ([exceptions.PinLocked()], KmsErrorKind.DENIED),
        ([exceptions.FunctionRejected()], KmsErrorKind.DENIED),
        ([exceptions.MechanismInvalid()], KmsErrorKind.DISABLED),
    ],
)
def test_answers_of_other_tokens_are_told_apart(errors, expected):
    session = _Failing(*errors)
    assert kind(Pkcs11Kms({}, client=session).unwrap_key, b"x" * 44, "lake-key") is expected
    assert session.calls == len(errors)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"kms\.pkcs11\.library and kms\.pkcs11\.token-label are needed"),
        ({"kms.pkcs11.library": "a", "kms.pkcs11.token-label": "b", "kms.pkcs11.pin-env": "c", "kms.pkcs11.pin-file": "d"}, "exclude"),
    ],
)
def test_wrong_settings_are_refused(given, message):
    with pytest.raises(PolicyError, match=message):
        load_kms_client({"encryption.kms-type": "pkcs11", **given})
