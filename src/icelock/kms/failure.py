"""``Service``: the error for a failed call of a key service, in the same words for every service.

A message names the service, the master key, the call, one of five reasons, the service's own code and the remedy. The text of the
service's answer stays in the chained cause: it may hold anything.

Not here: which code means what. Each client knows its service's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from icelock.errors import KmsError, KmsErrorKind

Call = Literal["wrap", "unwrap"]

_REMEDIES: Final[Mapping[KmsErrorKind, str]] = {
    KmsErrorKind.MISSING: "correct the table's encryption.key-id, or the KMS that the catalog names",
    KmsErrorKind.DISABLED: "enable the key again in the service, or cancel its deletion",
    KmsErrorKind.DENIED: "give these credentials the right to {call} with this key, or use valid ones",
    KmsErrorKind.FOREIGN: "the wrapped key was changed, or another key or service wrapped it: give that one",
    KmsErrorKind.UNAVAILABLE: "wait for the service, or correct its address",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A key service's name, and remedies that are its own."""

    name: str
    remedies: Mapping[KmsErrorKind, str] = field(default_factory=dict)

    def failure(self, kind: KmsErrorKind, *, call: Call, key_id: str, code: str, remedy: str | None = None) -> KmsError:
        """Return the error to raise.

        Args:
            kind: the reason.
            call: what was asked for.
            key_id: the master key's id.
            code: the service's own code or the error's type; never its text.
            remedy: instead of the service's for this kind.
        """
        advice = remedy or self.remedies.get(kind, _REMEDIES[kind]).format(call=call)
        msg = f"{self.name} did not {call} with master key {key_id!r}: {kind.value} ({code}); {advice}"
        return KmsError(msg, kind=kind, key_id=key_id)
