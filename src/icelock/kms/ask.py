"""Asking a KMS client, whoever wrote it: the one place where its methods are called for a key.

Built-in clients raise ``KmsError`` with a kind. A user's own class may raise or return anything: that becomes a
``KeyUnavailableError`` that names the class, the call and the master key. The text of its error may hold credentials or keys, so it
stays in the chained cause, as with built-in clients. Interrupts (not an ``Exception``) pass through.

Not here: retries (``kms.retry``), making a client (``kms.loader``).
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from icelock import metrics, telemetry
from icelock.errors import IcelockError, KeyUnavailableError, KmsError
from icelock.format.aes_gcm import KEY_LENGTHS
from icelock.kms.client import KmsClient
from icelock.kms.failure import Call
from icelock.kms.retry import ATTEMPTS_MADE as ATTEMPTS

LONGEST_BLOB: Final = 1 << 16
"""Bytes of a wrapped key: ten times the longest of the services (AWS: 6,144)."""
_COUNTER: Final[Mapping[Call, Mapping[str, int]]] = {"wrap": {"kms_wraps": 1}, "unwrap": {"kms_unwraps": 1}}


def wrapped(kms: KmsClient, key: bytes, key_id: str) -> bytes:
    """Have a key wrapped by a master key, in one call.

    Raises:
        KmsError: the KMS refused.
        KeyUnavailableError: the client failed otherwise, or did not return a wrapped key.
    """
    blob = _asked("wrap", lambda: kms.wrap_key(key, key_id), kms, key_id)
    if key in blob:
        raise KeyUnavailableError(
            f"the KMS client {client_name(kms)} returned the key itself instead of a wrapped one; it must encrypt what it is given"
        )
    if len(blob) > LONGEST_BLOB:
        raise KeyUnavailableError(
            f"the KMS client {client_name(kms)} returned a wrapped key of {len(blob)} bytes, and table metadata takes {LONGEST_BLOB}; "
            "correct the client"
        )
    return blob


def wrapped_for_good(kms: KmsClient, key: bytes, key_id: str) -> bytes:
    """Have a key wrapped that data will depend on, and check in a second call that it unwraps to the same key.

    Otherwise a broken or misconfigured client would be noticed by the first reader, when the key is lost.

    Raises:
        KmsError: the KMS refused to wrap, or to unwrap.
        KeyUnavailableError: the client failed otherwise, did not return a wrapped key, or unwraps it to another key.
    """
    blob = wrapped(kms, key, key_id)
    check_unwraps(kms, blob, key, key_id)
    return blob


def check_unwraps(kms: KmsClient, blob: bytes, key: bytes, key_id: str) -> None:
    """Check that a wrapped key unwraps to the key that was wrapped, in one call.

    Raises:
        KmsError: the KMS refused.
        KeyUnavailableError: the client failed otherwise, or it unwraps to another key.
    """
    if not hmac.compare_digest(unwrapped(kms, blob, key_id), key):
        raise KeyUnavailableError(
            f"the KMS client {client_name(kms)} wrapped a new key with master key {key_id!r} and unwrapped it to another one, so "
            "nobody could read what it protects. Nothing was written; check the client and its settings"
        )


def unwrapped(kms: KmsClient, blob: bytes, key_id: str) -> bytes:
    """Have a wrapped key unwrapped by a master key, in one call.

    Raises:
        KmsError: the KMS refused.
        KeyUnavailableError: the client failed otherwise, or returned no key.
    """
    key = _asked("unwrap", lambda: kms.unwrap_key(blob, key_id), kms, key_id)
    if len(key) not in KEY_LENGTHS:
        raise KeyUnavailableError(f"expected 16, 24 or 32 bytes from the KMS, got {len(key)}; check the KMS client {client_name(kms)}")
    return key


def version_of(kms: KmsClient, blob: bytes, key_id: str) -> str | None:
    """Return the version of the master key that wrapped a key, None if the client does not tell.

    A client may have ``wrapped_version(wrapped_key, wrapping_key_id)``, which returns text; it is no part of the contract.
    """
    tell = getattr(getattr(kms, "inner", kms), "wrapped_version", None)
    if not callable(tell):
        return None
    try:
        version = tell(blob, key_id)
    except Exception:  # noqa: BLE001 - it is told, or not
        return None
    return None if version is None else str(version)


def restated(error: KeyUnavailableError, message: str) -> KeyUnavailableError:
    """Return an error of the same kind with another message."""
    if isinstance(error, KmsError):
        return KmsError(message, kind=error.kind, key_id=error.key_id)
    return type(error)(message)


def client_name(kms: object) -> str:
    """Return the name of a client's class; of the inner client where retries are around it."""
    inner = getattr(kms, "inner", kms)
    return type(inner).__name__


def _asked(call: Call, ask: Callable[[], object], kms: KmsClient, key_id: str) -> bytes:
    provider, start = client_name(kms), time.perf_counter()
    described = {"icelock.kms.provider": provider, "icelock.kms.key_id": key_id}
    outcome = "failed"
    ATTEMPTS.set(1)
    try:
        with telemetry.Operation("kms", call, provider, remote=True, attributes=described) as operation:
            data = _answered(call, ask, kms, key_id)
            operation.set(kms_attempts=ATTEMPTS.get())
            outcome = "done"
    except KmsError as e:
        outcome = e.kind.name.lower()
        raise
    finally:
        failed = outcome != "done"
        metrics.add(kms_failures=failed, **_COUNTER[call])
        telemetry.event(
            "kms",
            logging.INFO if failed else logging.DEBUG,
            "kms-call",
            provider=provider,
            operation=call,
            key_id=key_id,
            attempts=ATTEMPTS.get(),
            outcome=outcome,
            duration_ms=telemetry.milliseconds_since(start),
        )
    return data


def _answered(call: Call, ask: Callable[[], object], kms: KmsClient, key_id: str) -> bytes:
    try:
        answer = ask()
        data = bytes(answer) if isinstance(answer, bytes | bytearray | memoryview) else b""
    except IcelockError:
        raise
    except Exception as e:
        raise KeyUnavailableError(
            f"the KMS client {client_name(kms)} failed to {call} with master key {key_id!r}: {type(e).__name__}; its cause follows"
        ) from e
    if not data:
        got = "none" if isinstance(answer, bytes | bytearray | memoryview) else type(answer).__name__
        raise KeyUnavailableError(
            f"the KMS client {client_name(kms)} did not {call} with master key {key_id!r}: expected bytes, got {got}; correct the client"
        )
    return data
