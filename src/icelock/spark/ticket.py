"""The driver's side of a write between planning and commit: a sealed file that never leaves the driver's machine.

Spark pickles one writer object: it goes to all executors, and it comes back for ``commit`` or ``abort`` in another Python process of the
driver. So what the commit needs (the catalog's properties, KMS settings among them) can be neither in the writer nor in memory. It lies
in a file of mode 0600 in a new folder of mode 0700 in the driver's temporary folder, encrypted with AES-GCM under a key for this one write:

    writer, so executors too:  path of the file, its key       driver's disk:  the file

An executor on another machine has no file; whoever finds the file (a crash leaves it behind) has no key. On the driver's own machine both
can be had by the user whom Spark runs as, who has the configuration anyway.

The file also says how far the write came: ``redeem`` deletes it before the commit begins. Spark calls ``abort`` after a failed commit too;
when the file is gone, data files must stay, because the commit removed them itself or its outcome is unknown.

Not here: what is committed (``commit``).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from icelock.errors import CommitError
from icelock.format import aes_gcm
from icelock.format.encrypted_key import EncryptedKey

if TYPE_CHECKING:
    from icelock.keys.entropy import Entropy

_NAME: Final = "write"
_KEY_LENGTH: Final = 32
_AAD: Final = b"icelock spark write"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWrite:
    """What a commit needs.

    Args:
        catalog: the catalog's name.
        properties: its properties as given to ``register``; None: they are in PyIceberg's configuration.
        identifier: the table within the catalog.
        table_uuid: of the table that the files were written for.
        overwrite: whether the files replace all that the table holds.
        keks: KEK entries that were minted at planning (wrapped), so that the commit does not wrap again.
    """

    catalog: str
    properties: Mapping[str, str] | None
    identifier: tuple[str, ...]
    table_uuid: str
    overwrite: bool
    keks: tuple[EncryptedKey, ...]

    def encode(self) -> bytes:
        """Return the values as JSON."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields | {"keks": [kek.to_json() for kek in self.keks]}).encode()

    @classmethod
    def decode(cls, data: bytes) -> PlannedWrite:
        """Return the values of ``encode``."""
        fields: dict[str, Any] = json.loads(data)
        keks = tuple(EncryptedKey.from_json(kek) for kek in fields["keks"])
        return cls(**{**fields, "identifier": tuple(fields["identifier"]), "keks": keks})

    def __repr__(self) -> str:
        return f"PlannedWrite({'.'.join((self.catalog, *self.identifier))})"


class Ticket:
    """Where a planned write lies, and the key of that one file."""

    def __init__(self, path: str, key: bytes) -> None:
        self._path = path
        self._key = key

    @classmethod
    def issue(cls, write: PlannedWrite, entropy: Entropy) -> Ticket:
        """Put a planned write into a file of this machine."""
        key = entropy.random_bytes(_KEY_LENGTH)
        path = Path(tempfile.mkdtemp(prefix="icelock-write-")) / _NAME  # made with mode 0700
        sealed = aes_gcm.encrypt(key, entropy.random_bytes(aes_gcm.NONCE_LENGTH), write.encode(), _AAD)
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(sealed)
        return cls(str(path), key)

    def redeem(self) -> PlannedWrite:
        """Return the planned write and delete the file: from here on the commit answers for the data files.

        Raises:
            CommitError: the file is not there: this write was committed or aborted before, or this is another machine.
        """
        try:
            sealed = Path(self._path).read_bytes()
        except OSError as e:
            msg = f"{self._path} is gone, so nothing is committed: the write ended before, or the driver's temporary folder was emptied"
            raise CommitError(msg) from e
        self.discard()
        return PlannedWrite.decode(aes_gcm.decrypt(self._key, sealed, _AAD))

    def discard(self) -> bool:
        """Delete the file; return whether it was there."""
        path = Path(self._path)
        try:
            path.unlink()
            path.parent.rmdir()
        except FileNotFoundError:
            return False
        return True

    def __repr__(self) -> str:
        return f"Ticket({self._path})"
