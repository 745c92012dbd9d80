"""A keyring: master keys with versions, and the rules for adding, rotating, disabling. Values only.

Versions count up from 1; the last one wraps and each one still unwraps. Every change returns a new keyring.

Not here: the file's bytes (``kms/keyring_format.py``), reading and replacing the file (``kms/keyring_file.py``), wrapping
(``kms/local.py``). Pure: no I/O, no clock, no randomness.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from icelock.errors import FormatError, KmsError, KmsErrorKind, PolicyError
from icelock.secret import SecretBytes

KEY_LENGTH: Final = 32
SALT_LENGTH: Final = 16
_MAX_KEY_ID: Final = 255
# Limits for what a file may cost its reader: 1 GiB and 64 passes are far above any sensible choice.
_MAX_ITERATIONS: Final = 64
_MAX_LANES: Final = 64
_MAX_MEMORY_KIB: Final = 1 << 20


class KeyState(Enum):
    """Whether a master key may be used."""

    ENABLED = "enabled"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassphraseProtection:
    """Argon2id, RFC 9106's second recommended choice of parameters.

    Attributes:
        salt: 16 random bytes.
        iterations: passes.
        lanes: degree of parallelism.
        memory_kib: memory in KiB.

    Raises:
        FormatError: a value out of bounds.
    """

    salt: bytes
    iterations: int = 3
    lanes: int = 4
    memory_kib: int = 65_536

    def __post_init__(self) -> None:
        if len(self.salt) != SALT_LENGTH:
            raise FormatError(f"Argon2id salt: expected {SALT_LENGTH} bytes, got {len(self.salt)}")
        in_bounds = 1 <= self.iterations <= _MAX_ITERATIONS and 1 <= self.lanes <= _MAX_LANES
        if not in_bounds or not 8 * self.lanes <= self.memory_kib <= _MAX_MEMORY_KIB:
            raise FormatError(
                f"Argon2id parameters: expected iterations 1 to {_MAX_ITERATIONS}, lanes 1 to {_MAX_LANES} and memory-kib 8 * lanes to "
                f"{_MAX_MEMORY_KIB}, got {self.iterations}, {self.lanes}, {self.memory_kib}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFileProtection:
    """The keyring key is in a file of its own."""


Protection = PassphraseProtection | KeyFileProtection


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterKeyVersion:
    """One version of a master key: its number (from 1), its creation time (ms since 1970, UTC) and its 32 bytes."""

    version: int
    created_ms: int
    key: SecretBytes

    def __post_init__(self) -> None:
        if len(self.key) != KEY_LENGTH:
            raise FormatError(f"master key version {self.version}: expected {KEY_LENGTH} bytes, got {len(self.key)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterKey:
    """A master key: id, state, and versions 1, 2, ... in this order."""

    key_id: str
    state: KeyState = KeyState.ENABLED
    versions: tuple[MasterKeyVersion, ...]

    def __post_init__(self) -> None:
        _check_key_id(self.key_id)
        numbers = [v.version for v in self.versions]
        if not numbers or numbers != list(range(1, len(numbers) + 1)):
            raise FormatError(f"master key {self.key_id!r}: expected versions 1, 2, ..., got {numbers}")

    @property
    def newest(self) -> MasterKeyVersion:
        """The version that wraps."""
        return self.versions[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyring:
    """All master keys of one file. Changes return a new keyring.

    Raises:
        FormatError: an id occurs twice.
    """

    protection: Protection
    keys: tuple[MasterKey, ...] = ()

    def __post_init__(self) -> None:
        ids = [key.key_id for key in self.keys]
        if len(set(ids)) != len(ids):
            raise FormatError(f"keyring: expected every key id once, got {ids}")

    def get(self, key_id: str) -> MasterKey:
        """Return the master key with that id.

        Raises:
            KmsError: ``MISSING``.
        """
        for key in self.keys:
            if key.key_id == key_id:
                return key
        known = ", ".join(repr(key.key_id) for key in self.keys) or "none"
        raise KmsError(
            f"no master key {key_id!r} (known: {known}); add it with `icelock keyring add`, or correct encryption.key-id",
            kind=KmsErrorKind.MISSING,
            key_id=key_id,
        )

    def added(self, key_id: str, *, key: SecretBytes, now_ms: int) -> Keyring:
        """Return the keyring with a new master key, in version 1.

        Raises:
            PolicyError: the id is taken, or is empty, too long, or has white space around it or control characters.
        """
        try:
            new = MasterKey(key_id=key_id, versions=(MasterKeyVersion(version=1, created_ms=now_ms, key=key),))
        except FormatError as e:
            raise PolicyError(str(e)) from e
        if any(old.key_id == key_id for old in self.keys):
            raise PolicyError(f"master key {key_id!r} already exists; use another id, or `icelock keyring rotate` for a new version")
        return replace(self, keys=(*self.keys, new))

    def rotated(self, key_id: str, *, key: SecretBytes, now_ms: int) -> Keyring:
        """Return the keyring with one more version of a master key; older versions still unwrap.

        Raises:
            KmsError: ``MISSING``, or ``DISABLED`` for a disabled key.
        """
        old = self.get(key_id)
        require_enabled(old)
        version = MasterKeyVersion(version=old.newest.version + 1, created_ms=now_ms, key=key)
        return self._replaced(replace(old, versions=(*old.versions, version)))

    def with_state(self, key_id: str, state: KeyState) -> Keyring:
        """Return the keyring with a master key enabled or disabled.

        Raises:
            KmsError: ``MISSING``.
        """
        return self._replaced(replace(self.get(key_id), state=state))

    def _replaced(self, new: MasterKey) -> Keyring:
        return replace(self, keys=tuple(new if key.key_id == new.key_id else key for key in self.keys))


def require_enabled(key: MasterKey) -> None:
    """Refuse a disabled key.

    Raises:
        KmsError: ``DISABLED``.
    """
    if key.state is not KeyState.ENABLED:
        raise KmsError(
            f"master key {key.key_id!r} is disabled; `icelock keyring enable` allows its use again",
            kind=KmsErrorKind.DISABLED,
            key_id=key.key_id,
        )


def _check_key_id(key_id: str) -> None:
    if not key_id or len(key_id) > _MAX_KEY_ID or key_id != key_id.strip() or not key_id.isprintable():
        raise FormatError(f"key id {key_id!r}: expected 1 to {_MAX_KEY_ID} printable characters without white space around them")
