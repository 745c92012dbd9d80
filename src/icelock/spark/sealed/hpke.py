"""Messages from tasks to the driver, sealed so that only the driver can open them: HPKE (RFC 9180, base mode) of ``cryptography``.

    suite    DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM
    keys     the private one follows from the operation's key (``spark.sealed.job``), which only driver processes have, or from a random
             one of a process that does not share it; the public one goes to tasks
    info     label, operation id, action, task, part, "more" or "last"; one a line
    sealed   encapsulated key (32 bytes) | ciphertext | tag (16 bytes)

A part that was changed, or sealed for another operation, job, task or place in the message, does not open. Base mode does not authenticate
the sender: anyone with the public key can seal, as every task must (docs/adr/0010-sealed-messages.md).

Not here: the content of messages (``spark.sealed.messages``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from icelock.errors import IntegrityError

_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_LABEL: Final = "icelock spark message"
_KEY_LABEL: Final = b"icelock spark message key"
_PRIVATE_KEY_LENGTH: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a sealed part belongs: the task's partition number, the part's number in its message, and whether it is the last."""

    task: int
    part: int = 0
    last: bool = True

    def __str__(self) -> str:
        return f"task {self.task}, part {self.part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """The tasks' side: the driver's public key, and the name of the job (operation id, action)."""

    public_key: bytes
    job: tuple[str, str]

    def seal(self, plain: bytes, place: Place) -> bytes:
        """Return ``plain`` sealed for the driver."""
        return _SUITE.encrypt(plain, X25519PublicKey.from_public_bytes(self.public_key), info=_info(self.job, place))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """The driver's side; never pickled."""

    private_key: X25519PrivateKey = field(repr=False)
    job: tuple[str, str]

    @classmethod
    def of(cls, secret: bytes, job: tuple[str, str]) -> Self:
        """Return the recipient of a job; ``secret`` is the operation's key."""
        derived = HKDF(SHA256(), _PRIVATE_KEY_LENGTH, salt=None, info=_KEY_LABEL).derive(secret)
        return cls(private_key=X25519PrivateKey.from_private_bytes(derived), job=job)

    @classmethod
    def new(cls, operation: str, action: str) -> Self:
        """Return the recipient of a job that one process plans and commits: its key is random, and nobody else's."""
        return cls(private_key=X25519PrivateKey.generate(), job=(operation, action))

    @property
    def sender(self) -> Sender:
        """What tasks get."""
        return Sender(public_key=self.private_key.public_key().public_bytes_raw(), job=self.job)

    def open(self, sealed: bytes, place: Place) -> bytes:
        """Return what was sealed; what was changed, or sealed for another job or place, is an IntegrityError."""
        try:
            return _SUITE.decrypt(sealed, self.private_key, info=_info(self.job, place))
        except InvalidTag as e:
            operation, action = self.job
            raise IntegrityError(
                f"what {place} sent does not authenticate: it was changed, or is from another task or job than {action} {operation}"
            ) from e


def _info(job: tuple[str, str], place: Place) -> bytes:
    lines = (_LABEL, *job, str(place.task), str(place.part), "last" if place.last else "more")
    return "\n".join(lines).encode()
