"""``TableEncryption``: turns a catalog's KMS settings and a table's metadata into storage access with keys.

Each catalog has one: it builds the KMS client when a key is first needed, in the process that needs it, and keeps the cache of
unwrapped KEKs. KMS settings come from the client's configuration only, never from table properties or a server.

Not here: rules (``table.guard.rules``), keys (``keys.manager``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.metadata import TableMetadata

from icelock import properties as names
from icelock.errors import KeyUnavailableError, PolicyError
from icelock.format.encrypted_key import EncryptedKey
from icelock.io.file_io import EncryptingFileIO
from icelock.keys.entropy import Entropy, SystemEntropy
from icelock.keys.kek import KekCache, unwrap_kek
from icelock.keys.manager import EncryptionManager, system_clock_ms
from icelock.keys.rewrap import are_the_same, keks_under
from icelock.kms.ask import restated
from icelock.kms.client import KmsClient
from icelock.kms.loader import load_kms_client
from icelock.metadata.coherence import LAST_MS
from icelock.metadata.table_metadata import is_encrypted
from icelock.secret import SecretBytes

KEK_CACHE_SECONDS_DEFAULT: Final = 3600
_LOCATIONS: Final = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
_NO_VALUES: Final = {TableProperties.OBJECT_STORE_ENABLED: "true", TableProperties.WRITE_OBJECT_STORE_PARTITIONED_PATHS: "false"}


class TableEncryption:
    """What a catalog (or a static table) needs to open and mint keys.

    ``owner`` names the catalog in messages; ``kms`` is a client to use instead of settings. Safe to share between threads.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        owner: str,
        kms: KmsClient | None = None,
        entropy: Entropy | None = None,
        clock: Callable[[], int] = system_clock_ms,
    ) -> None:
        self._settings = dict(settings)
        self._owner = owner
        self._kms = kms
        self._lock = threading.Lock()
        self.entropy: Entropy = entropy or SystemEntropy()
        self.clock = partial(_sound, clock)
        self._cache = KekCache(max_age_seconds=_cache_seconds(settings))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], *, owner: str, kms: KmsClient | None = None) -> TableEncryption:
        """Make one from catalog properties, refusing misspelt ones.

        Raises:
            PolicyError: an unknown ``encryption.*`` or ``kms.*`` property, both kms-type and kms-impl, or KMS settings without either.
        """
        names.check_catalog_properties(properties)
        # A built-in client's constructor only checks settings; a user's class may do more, so it is built when first needed.
        if kms is None and names.KMS_TYPE in properties:
            kms = load_kms_client(properties)
        if kms is None:
            names.check_kms_named(properties)
        return cls(properties, owner=owner, kms=kms)

    def kms(self) -> KmsClient:
        """Return the KMS client, building it at the first call.

        Raises:
            KeyUnavailableError: no KMS is configured.
        """
        with self._lock:
            if self._kms is None:
                self._kms = load_kms_client(self._settings)
            if self._kms is None:
                raise KeyUnavailableError(
                    f"no KMS is configured for {self._owner}: set {names.KMS_TYPE} (such as aws, vault, local) or {names.KMS_IMPL} "
                    "in the catalog's properties"
                )
            return self._kms

    def wrap(
        self,
        io: FileIO,
        metadata: TableMetadata,
        *,
        table: str,
        unused_keks: tuple[EncryptedKey, ...] = (),
        allow_plaintext: bool | None = None,
    ) -> FileIO:
        """Return ``io`` for a plain table, and storage access with the table's keys for an encrypted one.

        ``allow_plaintext``: whether files without a key may be read; as the client's settings say, if left out.
        """
        if not is_encrypted(metadata):
            return io
        policy = self._settings.get(names.PLAINTEXT_FILES, names.PLAINTEXT_FILES_REFUSE)
        return EncryptingFileIO(
            io,
            manager=partial(self.manager, metadata, table=table, unused_keks=unused_keks),
            entropy=self.entropy,
            allow_plaintext=policy == names.PLAINTEXT_FILES_ALLOW if allow_plaintext is None else allow_plaintext,
        )

    def check_locations(self, properties: Mapping[str, str], *, table: str) -> None:
        """Check who names the class that chooses file paths: a table's properties lie on storage, and must not cause code to be loaded.

        Raises:
            PolicyError: the table names one, and the client's settings do not; nothing was loaded.
        """
        named = properties.get(_LOCATIONS)
        if named is not None and named != self._settings.get(_LOCATIONS):
            raise PolicyError(
                f"table {table} has {_LOCATIONS} {named!r}, which would load a class of the table's choice: remove the property, or set "
                f"it for {self._owner} too if you trust the class"
            )

    def locations(self, metadata: TableMetadata, *, table: str) -> LocationProvider:
        """Return what chooses the paths of a table's files; see ``check_locations``."""
        self.check_locations(metadata.properties, table=table)
        return load_location_provider(metadata.location, self.for_paths(metadata.properties))

    def for_paths(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return a table's properties for paths of new files: the client may forbid partition values in paths.

        Otherwise whoever sets a table's specs and properties (a REST server, a writer of metadata.json) decides which values appear.
        """
        shown = names.flag(self._settings, names.VALUES_IN_PATHS, default=True)
        return dict(properties) if shown else {**properties, **_NO_VALUES}

    def open_kek(self, kek: EncryptedKey) -> SecretBytes:
        """Return a KEK's bytes, from the cache or by one call of the KMS.

        Raises:
            KmsError: the KMS refused.
            KeyUnavailableError: no KMS is configured, or its client failed otherwise.
        """
        kms = self.kms()
        return self._cache.get(kms, kek.encrypted_by_id, kek.encrypted_key_metadata, lambda: unwrap_kek(kek, kms=kms))

    def know_kek(self, kek: EncryptedKey, raw: SecretBytes) -> None:
        """Keep the bytes of a KEK that was just wrapped."""
        self._cache.put(self.kms(), kek.encrypted_by_id, kek.encrypted_key_metadata, raw)

    def same_keks(self, before: TableMetadata, now: TableMetadata) -> bool:
        """Whether a table's KEKs are those that it had before, though other entries wrap them: then its master key may be another one.

        Raises:
            KeyUnavailableError: the KMS does not open one of them.
        """
        old, new = names.encryption_key_id(before.properties), names.encryption_key_id(now.properties)
        keys: tuple[EncryptedKey, ...] = tuple(getattr(now, "encryption_keys", ()))
        return are_the_same(keks_under(getattr(before, "encryption_keys", ()), old), keys, new, opened=self.open_kek)

    def manager(self, metadata: TableMetadata, *, table: str, unused_keks: tuple[EncryptedKey, ...] = ()) -> EncryptionManager:
        """Return the key manager of one version of a table.

        Raises:
            KeyUnavailableError: no KMS is configured; names table and master key.
        """
        master_key_id = names.encryption_key_id(metadata.properties)
        if master_key_id is None:
            raise PolicyError(f"table {table} has no {names.ENCRYPTION_KEY_ID}")
        try:
            kms = self.kms()
        except KeyUnavailableError as e:
            raise restated(e, f"table {table} is encrypted with master key {master_key_id!r}, but {e}") from e
        return EncryptionManager(
            table=table,
            master_key_id=master_key_id,
            data_key_length=names.data_key_length(metadata.properties),
            keys=tuple(getattr(metadata, "encryption_keys", ())),
            kms=kms,
            cache=self._cache,
            unused_keks=unused_keks,
            entropy=self.entropy,
            clock=self.clock,
        )


def _cache_seconds(settings: Mapping[str, str]) -> int:
    value = settings.get(names.KEK_CACHE_SECONDS, str(KEK_CACHE_SECONDS_DEFAULT))
    if not names.is_number(str(value)) or int(value) > KEK_CACHE_SECONDS_DEFAULT:
        raise PolicyError(f"{names.KEK_CACHE_SECONDS} is {value!r}; it must be a number of seconds from 0 to {KEK_CACHE_SECONDS_DEFAULT}")
    return int(value)


def _sound(clock: Callable[[], int]) -> int:
    """Return the time of a clock in ms since 1970; refuse one before 1970 or after 9999, which table metadata cannot hold."""
    now = clock()
    if not 0 <= now <= LAST_MS:
        raise PolicyError(
            f"the clock of this machine says {now} ms since 1970, which is outside of 1970 to 9999: set the clock (NTP) and retry"
        )
    return now
