"""Every property that icelock knows: its name, default and parser, and the check for misspelt ones.

Table properties live in table metadata; catalog properties come from the client's configuration only. A name below ``encryption.``,
``kms.`` or ``icelock.`` that is not listed here is an error (cases C-55, C-59): a misspelt one would otherwise mean plaintext.

Whatever is refused here is a PolicyError that names the property, what it may be, or the nearest known one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from icelock.errors import PolicyError

# Table properties (Iceberg's encryption page, Java TableProperties)
ENCRYPTION_KEY_ID: Final = "encryption.key-id"
DATA_KEY_LENGTH: Final = "encryption.data-key-length"
DATA_KEY_LENGTH_DEFAULT: Final = 16
DATA_KEY_LENGTHS: Final = (16, 24, 32)
FIXED: Final = (ENCRYPTION_KEY_ID, DATA_KEY_LENGTH)  # they never change after creation
# What ``table.maintenance.optimize`` does (``table.maintenance.optimize_policy`` parses them).
OPTIMIZE_PREFIX: Final = "icelock.optimize."
OPTIMIZE_STEPS: Final = ("compact", "rewrite-deletes", "rewrite-manifests", "expire", "leftovers")
OPTIMIZE_SETTINGS: Final = (
    *("target-file-size-bytes", "min-input-files", "sort-by", "z-order-by", "deleted-rows-ratio", "delete-files-ratio", "min-manifests"),
    "leftovers-older-than",
)
OPTIMIZE: Final = tuple(OPTIMIZE_PREFIX + name for name in (*OPTIMIZE_STEPS, *OPTIMIZE_SETTINGS))
# The KEK of a rotation of data that is not finished (``table.maintenance.rotation.rotate_keys``).
ROTATION_KEK: Final = "icelock.rotation-kek"
# The metadata file of the plain table that an encrypted one was before its conversion (``table.maintenance.conversion.convert``).
CONVERTED_FROM: Final = "icelock.converted-from"
# The same, once the removal of its files was begun (``table.guard.plain_origin``).
REMOVING_PLAIN: Final = "icelock.removing-plain"
# In the summary of snapshots that a conversion adds: they change no row.
SWITCH: Final = "icelock.conversion"
PLAIN_ORIGIN: Final = (REMOVING_PLAIN, CONVERTED_FROM)
# The last batch of a stream that the table has, by the query's id (``table.epochs``).
STREAM_PREFIX: Final = "icelock.stream."
OF_TABLES: Final = (*FIXED, *OPTIMIZE, ROTATION_KEK, *PLAIN_ORIGIN)

# Catalog properties. The policy for plain files is among them: table properties lie on the storage that is not trusted.
PLAINTEXT_FILES: Final = "icelock.plaintext-files"
PLAINTEXT_FILES_REFUSE: Final = "refuse"
PLAINTEXT_FILES_ALLOW: Final = "allow-unkeyed"
KMS_TYPE: Final = "encryption.kms-type"
KMS_IMPL: Final = "encryption.kms-impl"
PY_KMS_IMPL: Final = "py-kms-impl"
KEK_CACHE_SECONDS: Final = "encryption.kek-cache-seconds"
HIVE_REQUIRE_HASH: Final = "icelock.hive.require-hash"
REQUIRE_ENCRYPTION: Final = "icelock.require-encryption"
PLAIN_TABLES: Final = "icelock.plain-tables"
VALUES_IN_PATHS: Final = "icelock.partition-values-in-paths"
REST_ANSWER_TIMEOUT: Final = "icelock.rest.answer-timeout-ms"
REST_MAX_ANSWER: Final = "icelock.rest.max-answer-bytes"
REST_MAX_ANSWER_DEFAULT: Final = 128 * 2**20
PINS_PREFIX: Final = "icelock.pins."
PINS_FILE: Final = "icelock.pins-file"
SPARK_PLAIN_RPC: Final = "icelock.spark.plain-rpc"
SPARK_PLAIN_RPC_WARN: Final = "warn"
SPARK_PLAIN_RPC_REFUSE: Final = "refuse"
_CHOICES: Final = {
    PLAINTEXT_FILES: (PLAINTEXT_FILES_REFUSE, PLAINTEXT_FILES_ALLOW),
    SPARK_PLAIN_RPC: (SPARK_PLAIN_RPC_WARN, SPARK_PLAIN_RPC_REFUSE),
}
SPARK_EXECUTOR_PROPERTIES: Final = "icelock.spark.executor-properties"
LIMITS_PREFIX: Final = "icelock.limits."
LIMIT_METADATA_BYTES: Final = "icelock.limits.metadata-bytes"
LIMIT_MANIFEST_BYTES: Final = "icelock.limits.manifest-bytes"
LIMIT_MANIFEST_ENTRIES: Final = "icelock.limits.manifest-entries"
LIMIT_AVRO_BLOCK_BYTES: Final = "icelock.limits.avro-block-bytes"
LIMIT_AVRO_BLOCK_ROWS: Final = "icelock.limits.avro-block-rows"
LIMIT_DELETE_BYTES: Final = "icelock.limits.delete-bytes"
LIMITS: Final[Mapping[str, int]] = {
    LIMIT_METADATA_BYTES: 128 << 20,
    LIMIT_MANIFEST_BYTES: 512 << 20,
    LIMIT_MANIFEST_ENTRIES: 1_000_000,
    LIMIT_AVRO_BLOCK_BYTES: 64 << 20,
    LIMIT_AVRO_BLOCK_ROWS: 2_000_000,
    LIMIT_DELETE_BYTES: 2 << 30,
}
"""How much may come out of a file, by default (``io.limits``)."""
KMS_MEMORY_KEY_PREFIX: Final = "kms.memory.keys."
KMS_LOCAL_PATH: Final = "kms.local.path"
KMS_LOCAL_KEY_FILE: Final = "kms.local.key-file"
KMS_LOCAL_PASSPHRASE_ENV: Final = "kms.local.passphrase-env"  # noqa: S105 - a property's name
KMS_AWS_ENDPOINT: Final = "kms.endpoint"
KMS_AWS_ALGORITHM: Final = "kms.encryption-algorithm-spec"
KMS_AWS_DATA_KEY_SPEC: Final = "kms.data-key-spec"
CLIENT_REGION: Final = "client.region"
AZURE_KEYVAULT_URL: Final = "azure.keyvault.url"
AZURE_KEYVAULT_KEY_WRAP_ALGORITHM: Final = "azure.keyvault.key-wrap-algorithm"
GCS_OAUTH2_TOKEN: Final = "gcs.oauth2.token"  # noqa: S105 - a property's name
KMS_VAULT_ADDRESS: Final = "kms.vault.address"
KMS_VAULT_NAMESPACE: Final = "kms.vault.namespace"
KMS_VAULT_MOUNT: Final = "kms.vault.mount"
KMS_VAULT_TOKEN_FILE: Final = "kms.vault.token-file"  # noqa: S105 - a property's name
KMS_VAULT_CA_FILE: Final = "kms.vault.ca-file"
KMS_KEYSTORE_PATH: Final = "kms.client.keystore.path"
KMS_KEYSTORE_PASSWORD_ENV: Final = "kms.client.keystore.password-env"  # noqa: S105 - a property's name
KMS_PKCS11_LIBRARY: Final = "kms.pkcs11.library"
KMS_PKCS11_TOKEN_LABEL: Final = "kms.pkcs11.token-label"  # noqa: S105 - a property's name
KMS_PKCS11_PIN_FILE: Final = "kms.pkcs11.pin-file"
KMS_PKCS11_PIN_ENV: Final = "kms.pkcs11.pin-env"
KMS_RETRY_PREFIX: Final = "kms.retry."

# Defaults and overrides for a catalog's new tables (Java CatalogProperties)
TABLE_DEFAULT_PREFIX: Final = "table-default."
TABLE_OVERRIDE_PREFIX: Final = "table-override."
# Given when a table is created, and not stored: it allows a plain table where tables are encrypted otherwise.
PLAIN: Final = "icelock.plain"
# Java's: CatalogProperties.UNIQUE_TABLE_LOCATION
UNIQUE_TABLE_LOCATION: Final = "unique-table-location"

FORMAT_VERSION: Final = "format-version"
# Encryption came with format version 3. Nothing below has a place for keys, and version 4 is refused (``metadata.table_metadata``).
ENCRYPTED_VERSION: Final = 3

# Reserved names. Java does not store the first group (TableProperties.RESERVED_PROPERTIES), Spark gives the second another meaning
# (SparkTable, Spark3Util); the others are parameters of a table's row in Hive or Glue (metadata_hash_location is ours).
_RESERVED: Final = frozenset(
    (
        *(FORMAT_VERSION, "uuid", "snapshot-count", "current-snapshot-id", "current-snapshot-summary", "current-snapshot-timestamp-ms"),
        *("current-schema", "default-partition-spec", "default-sort-order"),
        *("provider", "location", "format", "sort-order", "identifier-fields"),
        *("table_type", "metadata_location", "previous_metadata_location", "metadata_hash", "metadata_hash_location", "storage_handler"),
        *("external", "numfiles", "numrows", "totalsize", "transient_lastddltime", "column_stats_accurate", "do_not_update_stats"),
    )
)

_OF_NEW_TABLES: Final = (TABLE_DEFAULT_PREFIX, TABLE_OVERRIDE_PREFIX)
_CATALOG: Final = (
    KMS_TYPE,
    KMS_IMPL,
    KEK_CACHE_SECONDS,
    *_CHOICES,
    *(REQUIRE_ENCRYPTION, PLAIN_TABLES, VALUES_IN_PATHS),
    HIVE_REQUIRE_HASH,
    REST_ANSWER_TIMEOUT,
    REST_MAX_ANSWER,
    PINS_FILE,
    SPARK_EXECUTOR_PROPERTIES,
    *LIMITS,
)
_LONG: Final = 15
_GUARDED_PREFIXES: Final = ("encryption.", "encryption-", "encryption_", "kms.", "icelock.")
# ``kms.`` names belong to the KMS client, which checks its own; a user's class may have any.
_KMS: Final = (
    *(KMS_LOCAL_PATH, KMS_LOCAL_KEY_FILE, KMS_LOCAL_PASSPHRASE_ENV, KMS_AWS_ENDPOINT, KMS_AWS_ALGORITHM, KMS_AWS_DATA_KEY_SPEC),
    *(KMS_VAULT_ADDRESS, KMS_VAULT_NAMESPACE, KMS_VAULT_MOUNT, KMS_VAULT_TOKEN_FILE, KMS_VAULT_CA_FILE),
    *(KMS_KEYSTORE_PATH, KMS_KEYSTORE_PASSWORD_ENV, KMS_PKCS11_LIBRARY, KMS_PKCS11_TOKEN_LABEL, KMS_PKCS11_PIN_FILE, KMS_PKCS11_PIN_ENV),
)
_KMS_PREFIXES: Final = ("kms.", "azure.keyvault.")


def _folded(name: str) -> str:
    """Return a name in lower case with one kind of separator (environment variables have ``_`` only)."""
    return re.sub(r"[._-]+", "-", name.lower()).strip("-")


_SPELT: Final[Mapping[str, str]] = {
    _folded(name): name for name in (*_CATALOG, PY_KMS_IMPL, *_KMS, *(prefix + name for prefix in _OF_NEW_TABLES for name in FIXED))
}
_BARE: Final[Mapping[str, str]] = {
    **{_folded(name.partition(".")[2]): name for name in _CATALOG},
    **{_folded(short): TABLE_DEFAULT_PREFIX + name for name in FIXED for short in (name, name.partition(".")[2])},
    "encryption": KMS_TYPE,
    "kms": KMS_TYPE,
    "icelock": REQUIRE_ENCRYPTION,
}
"""What was meant by names without their first part, or with nothing else."""
_FAMILIES: Final = ("encryption", "kms", "icelock", "table-default", "table-override")


def is_of_tables(name: str) -> bool:
    """Whether a property of icelock's is one of tables."""
    return name in OF_TABLES or name.startswith(STREAM_PREFIX)


def _refuse_unknown(properties: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for name in properties:
        lowered = name.lower()
        if name in known or not lowered.startswith(_GUARDED_PREFIXES) or (known is OF_TABLES and is_of_tables(name)):
            continue
        from icelock import nearest  # noqa: PLC0415 - not in tasks

        raise PolicyError(f"unknown {where} property {name!r}; {nearest.hint(lowered, known)}")


def check_table_properties(properties: Mapping[str, str]) -> None:
    """Refuse unknown or misspelt ``encryption.*``, ``kms.*`` and ``icelock.*`` table properties."""
    _refuse_unknown(properties, OF_TABLES, "table")
    if ENCRYPTION_KEY_ID in properties:
        encryption_key_id(properties)
    data_key_length(properties)


def check_misplaced(given: Iterable[str]) -> None:
    """Refuse table properties that look like encryption settings but are not: they would be stored and have no effect."""
    for name in given:
        folded = _folded(name)
        of_table = _setting(name) or _BARE.get(folded, "").removeprefix(TABLE_DEFAULT_PREFIX)
        if is_of_tables(name) or not (of_table or folded in _SPELT or _family(folded)):
            continue
        near = difflib.get_close_matches(name.lower(), OPTIMIZE, n=1, cutoff=0.8)
        of_table = of_table or (near[0] if near else "")
        meant = _SPELT.get(folded) or of_table
        hint = f"did you mean {of_table!r}?" if of_table in OF_TABLES else f"set {meant!r} for the catalog" if meant else "no table has it"
        raise PolicyError(f"unknown table property {name!r}; {hint}")


def check_nested(properties: Mapping[str, object]) -> None:
    """Refuse encryption settings in nested blocks, as YAML allows: PyIceberg passes a block on as one value, which has no effect."""
    for name, value in properties.items():
        for inner in _leaves(name, value) if isinstance(value, Mapping) and value else ():
            folded = _folded(inner)
            if folded in _SPELT or _family(folded) is not None:
                right = _SPELT.get(folded, inner)
                raise PolicyError(
                    f"catalog property {name!r} is a block of others: write each with its full name and one value, such as {right!r}"
                )


def check_kms_named(properties: Mapping[str, object]) -> None:
    """Refuse KMS settings in a configuration that names no KMS: its tables would be plain."""
    for name in (KMS_IMPL, PY_KMS_IMPL):
        if properties.get(name) is not None and not str(properties[name]).strip():
            raise PolicyError(f"{name} is empty: name the class of your KMS client, or leave {name} out")
    stray = next((name for name in properties if name.startswith(_KMS_PREFIXES)), None)
    if stray is not None and not has_kms(properties):
        raise PolicyError(
            f"{stray} is set, and no KMS is named: set {KMS_TYPE} (such as aws, vault, local) or {KMS_IMPL} too, or leave {stray} out"
        )


def _leaves(name: str, value: object) -> list[str]:
    if not isinstance(value, Mapping) or not value:
        return [name]
    return [leaf for key, inner in value.items() for leaf in _leaves(f"{name}.{key}", inner)]


def _family(folded: str) -> str | None:
    """Return a name's first part if it is one of ours."""
    return next((first for first in _FAMILIES if folded == first or folded.startswith(f"{first}-")), None)


def _setting(name: str) -> str | None:
    """Return the table setting that a name ends with."""
    return next((known for known in FIXED if name.lower().replace("_", "-").endswith(known)), None)


def check_reserved(given: Iterable[str], *, making: bool = False) -> None:
    """Refuse names that Java Iceberg, Spark, Hive or Glue reserve, in upper or lower case.

    A stored ``format-version`` makes every later commit by Java fail; others overwrite what a metastore knows of the table.

    Args:
        given: names of table properties.
        making: a table is created; ``format-version`` then gives its version, and is not stored.
    """
    for name in given:
        if name.lower() not in _RESERVED or (making and name == FORMAT_VERSION):
            continue
        hint = "upgrade the table by upgrade_table_version" if name.lower() == FORMAT_VERSION else "choose another name"
        raise PolicyError(f"{name!r} cannot be a table property: Iceberg and its catalogs reserve this name; {hint}")


def check_catalog_properties(properties: Mapping[str, object]) -> None:
    """Refuse unknown or misspelt ``encryption.*`` and ``icelock.*`` catalog properties; ``kms.*`` is left to the client.

    Below ``table-default.`` and ``table-override.`` are table properties, and checked as such.
    """
    check_nested(properties)
    for name in properties:
        _refuse_misplaced(name)
    for prefix in _OF_NEW_TABLES:
        try:
            check_table_properties(below(properties, prefix))
            check_misplaced(below(properties, prefix))
            check_reserved(below(properties, prefix), making=True)
        except PolicyError as e:
            raise PolicyError(f"catalog properties below {prefix!r}: {e}") from e
    flag(properties, REQUIRE_ENCRYPTION, default=True)
    flag(properties, VALUES_IN_PATHS, default=True)
    _refuse_unknown({k: v for k, v in properties.items() if not k.startswith(("kms.", PINS_PREFIX))}, _CATALOG, "catalog")
    for name in LIMITS:
        limit(properties, name)
    for name, choices in _CHOICES.items():
        if (value := properties.get(name, choices[0])) not in choices:
            raise PolicyError(f"{name} is {value!r}; it must be {choices[0]!r} or {choices[1]!r}")


def below(properties: Mapping[str, object], prefix: str) -> dict[str, str]:
    """Return the properties whose names begin with a prefix, without it (Java PropertyUtil.propertiesWithPrefix)."""
    return {name.removeprefix(prefix): str(value) for name, value in properties.items() if name.startswith(prefix) and value is not None}


def flag(properties: Mapping[str, object], name: str, *, default: bool) -> bool:
    """Return a property that is true or false."""
    value = str(properties.get(name, default)).lower()
    if value not in {"true", "false"}:
        raise PolicyError(f"{name} is {properties[name]!r}; it must be true or false")
    return value == "true"


def is_number(text: str) -> bool:
    """Whether a text is digits 0 to 9 alone: ``str.isdigit`` takes a superscript ² too, which ``int`` does not."""
    return text.isascii() and text.isdigit()


def limit(properties: Mapping[str, object], name: str) -> int:
    """Return a limit, or its default."""
    value = str(properties.get(name, LIMITS[name])).strip()
    if not (is_number(value) and 0 < int(value) < 1 << 63):
        raise PolicyError(f"{name} is {properties[name]!r}; it must be a whole number from 1 to 2^63 - 1")
    return int(value)


def has_kms(properties: Mapping[str, object]) -> bool:
    """Whether a catalog's properties name a KMS."""
    return any(properties.get(name) for name in (KMS_TYPE, KMS_IMPL, PY_KMS_IMPL))


def _refuse_misplaced(name: str) -> None:
    """Refuse a catalog property that was meant for new tables or for encryption, and would have no effect."""
    if name.startswith(_OF_NEW_TABLES) and name not in _OF_NEW_TABLES:
        return
    lowered = name.lower()
    first = lowered.split(".")[0].replace("_", "-") + "."
    near = difflib.get_close_matches(first, _OF_NEW_TABLES, n=1, cutoff=0.85)
    setting = _setting(name)
    meant = None if setting is not None or name.startswith("kms.") else _meant(name)
    if meant is not None:
        msg = f"unknown catalog property {name!r}; did you mean {meant!r}?"
    elif near:
        msg = f"unknown catalog property {name!r}; did you mean {near[0] + (lowered.partition('.')[2] or '<table property>')!r}?"
    elif setting is not None:
        msg = (
            f"{name!r} is not a catalog property: for all new tables of the catalog set {TABLE_DEFAULT_PREFIX + setting!r}, or give "
            f"{setting!r} to create_table"
        )
    else:
        return
    raise PolicyError(msg)


def _meant(name: str) -> str | None:
    """Return the catalog property that a misspelt name was meant to be; None for a correct name, or one that is not ours."""
    folded = _folded(name)
    near = difflib.get_close_matches(folded, _SPELT, n=1, cutoff=0.9)
    family = _family(folded)
    meant = _SPELT.get(folded) or _BARE.get(folded) or (_SPELT[near[0]] if near else None)
    if meant is None and family == "kms":
        meant = f"kms.{name[4:]}"
    elif meant is None and family in {"table-default", "table-override"}:
        meant = f"{family}.{name[len(family) + 1 :].lower() or '<table property>'}"
    return None if meant == name or name in _CATALOG else meant


def positive_number(properties: Mapping[str, object], name: str, default: int) -> int:
    """Return a catalog property that is a whole number above 0."""
    text = str(properties.get(name, default))
    if not (is_number(text) and len(text) <= _LONG and int(text) > 0):
        raise PolicyError(f"{name} is {text[:80]!r}; it must be a whole number above 0")
    return int(text)


def encryption_key_id(properties: Mapping[str, str]) -> str | None:
    """Return the table's master key id, or None for a plain table; an empty one, or white space around it, is refused (case C-59)."""
    key_id = properties.get(ENCRYPTION_KEY_ID)
    if key_id is None:
        return None
    if not isinstance(key_id, str) or not key_id or key_id != key_id.strip():
        raise PolicyError(f"{ENCRYPTION_KEY_ID} is {key_id!r}; it must be a key id of the KMS, without white space around it")
    return key_id


def data_key_length(properties: Mapping[str, str]) -> int:
    """Return the length of KEKs and DEKs in bytes: 16 (default), 24 or 32."""
    value = properties.get(DATA_KEY_LENGTH, str(DATA_KEY_LENGTH_DEFAULT))
    if str(value) not in {str(n) for n in DATA_KEY_LENGTHS}:
        raise PolicyError(f"{DATA_KEY_LENGTH} is {value!r}; it must be 16, 24 or 32 (bytes)")
    return int(value)
