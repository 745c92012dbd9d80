"""``load_kms_client``: catalog properties → KMS client.

One of three properties chooses: ``encryption.kms-type`` (one of icelock's clients) or ``encryption.kms-impl`` / ``py-kms-impl``
(the dotted path of your own class; the second for configuration shared with Java, where the first names a Java class).
With icelock's own clients every ``kms.*`` name is checked, because a misspelt one would go unnoticed (cases C-55, C-59);
your own class may take any, so only ``kms.retry.*`` is checked then.

Clients are imported on demand, so that their libraries can be extras. The caller takes care that properties come
from the client's own configuration, never from a server's answer or a table.

Not here: what each client does with its properties.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from icelock import properties as names
from icelock.errors import IcelockError, KmsClientError, PolicyError
from icelock.kms.client import KmsClient
from icelock.kms.retry import RETRY_PROPERTIES, RetryingKms, RetryPolicy

_METHODS: Final = ("wrap_key", "unwrap_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class _BuiltIn:
    path: str
    names: tuple[str, ...] = ()
    prefix: str | None = None
    extra: str | None = None

    def knows(self, name: str) -> bool:
        return name in self.names or (self.prefix is not None and name.startswith(self.prefix))


_BUILT_IN: Final[Mapping[str, _BuiltIn]] = {
    "memory": _BuiltIn(path="icelock.kms.memory.MemoryKms", prefix=names.KMS_MEMORY_KEY_PREFIX),
    "local": _BuiltIn(
        path="icelock.kms.local.LocalKms", names=(names.KMS_LOCAL_PATH, names.KMS_LOCAL_KEY_FILE, names.KMS_LOCAL_PASSPHRASE_ENV)
    ),
    "aws": _BuiltIn(
        path="icelock.kms.aws.AwsKms",
        names=(names.KMS_AWS_ENDPOINT, names.CLIENT_REGION, names.KMS_AWS_ALGORITHM, names.KMS_AWS_DATA_KEY_SPEC),
        extra="aws",
    ),
    "azure": _BuiltIn(
        path="icelock.kms.azure.AzureKms", names=(names.AZURE_KEYVAULT_URL, names.AZURE_KEYVAULT_KEY_WRAP_ALGORITHM), extra="azure"
    ),
    "gcp": _BuiltIn(path="icelock.kms.gcp.GcpKms", names=(names.GCS_OAUTH2_TOKEN,), extra="gcp"),
    "vault": _BuiltIn(
        path="icelock.kms.vault.VaultKms",
        names=(
            names.KMS_VAULT_ADDRESS,
            names.KMS_VAULT_NAMESPACE,
            names.KMS_VAULT_MOUNT,
            names.KMS_VAULT_TOKEN_FILE,
            names.KMS_VAULT_CA_FILE,
        ),
        extra="vault",
    ),
    "keystore": _BuiltIn(
        path="icelock.kms.keystore.KeystoreKms", names=(names.KMS_KEYSTORE_PATH, names.KMS_KEYSTORE_PASSWORD_ENV), extra="keystore"
    ),
    "pkcs11": _BuiltIn(
        path="icelock.kms.pkcs11.Pkcs11Kms",
        names=(names.KMS_PKCS11_LIBRARY, names.KMS_PKCS11_TOKEN_LABEL, names.KMS_PKCS11_PIN_FILE, names.KMS_PKCS11_PIN_ENV),
        extra="pkcs11",
    ),
}


def load_kms_client(properties: Mapping[str, str]) -> KmsClient | None:
    """Return the KMS client that the catalog properties ask for, with retries around it; None if they name no KMS.

    No service is called and no file is read: a wrong key id or an unreachable service shows at the first use, a keyring or keystore that
    is not there shows here.

    Raises:
        PolicyError: two choices at once, an unknown type, a class that cannot be used, an unknown or wrong ``kms.*`` setting.
        KmsError: a keyring or keystore is not there.
        KmsClientError: constructing the class failed; it is a PolicyError and a KeyUnavailableError.
    """
    choice = _choice(properties)
    if choice is None:
        return None
    setting, kms_class = choice
    policy = RetryPolicy.from_properties(properties)
    return RetryingKms(_construct(kms_class, dict(properties), setting), policy)


def _choice(properties: Mapping[str, str]) -> tuple[str, type[Any]] | None:
    """Return the property that chooses and the class that it names; the names of the other properties are checked."""
    chosen = [name for name in (names.KMS_TYPE, names.KMS_IMPL, names.PY_KMS_IMPL) if properties.get(name) is not None]
    if not chosen:
        return None
    if len(chosen) > 1:
        raise PolicyError(f"{' and '.join(chosen)} are set; they exclude each other: keep one")
    setting, value = chosen[0], properties[chosen[0]]
    if setting != names.KMS_TYPE:
        _check_retry_names(properties)
        return setting, _import_class(value, setting)
    built_in = _built_in(value)
    _check_names(properties, built_in, value)
    return setting, _import_class(built_in.path, setting, extra=built_in.extra)


def _built_in(kms_type: str) -> _BuiltIn:
    found = _BUILT_IN.get(kms_type)
    if found is not None:
        return found
    types = ", ".join(_BUILT_IN)
    near = difflib.get_close_matches(str(kms_type).lower().strip(), tuple(_BUILT_IN), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {types}; for a class of your own use {names.KMS_IMPL}"
    raise PolicyError(f"{names.KMS_TYPE} is {kms_type!r}; {hint}")


def _check_names(properties: Mapping[str, str], built_in: _BuiltIn, kms_type: str) -> None:
    prefix_example = () if built_in.prefix is None else (f"{built_in.prefix}<key id>",)
    known = (*built_in.names, *prefix_example, *RETRY_PROPERTIES)
    for name in _kms_names(properties):
        if built_in.knows(name) or name in RETRY_PROPERTIES:
            continue
        other = next((t for t, b in _BUILT_IN.items() if b.knows(name)), None)
        if other is not None:
            raise PolicyError(f"{name} belongs to {names.KMS_TYPE} = {other!r}, but the type is {kms_type!r}; remove one of the two")
        _refuse(name, known, built_in.prefix)


def _check_retry_names(properties: Mapping[str, str]) -> None:
    for name in _kms_names(properties):
        if name.lower().startswith(names.KMS_RETRY_PREFIX) and name not in RETRY_PROPERTIES:
            _refuse(name, RETRY_PROPERTIES, None)


def _kms_names(properties: Mapping[str, str]) -> list[str]:
    return [name for name in properties if name.lower().startswith(("kms.", "kms-", "kms_"))]


def _refuse(name: str, known: tuple[str, ...], prefix: str | None) -> None:
    lowered = name.lower()
    near = difflib.get_close_matches(lowered, known, n=1)
    # A key id after a misspelt prefix may have any length, so only the prefix is compared.
    if not near and prefix is not None and difflib.get_close_matches(lowered[: len(prefix)], (prefix,), n=1):
        near = [f"{prefix}<key id>"]
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    raise PolicyError(f"unknown KMS property {name!r}; {hint}")


def _import_class(path: str, setting: str, *, extra: str | None = None) -> type[Any]:
    module_name, _, class_name = str(path).rpartition(".")
    if not module_name or not all(part.isidentifier() for part in str(path).split(".")):
        raise PolicyError(f"{setting} is {path!r}; it must be the dotted path of a Python class, such as 'my_package.my_module.MyKms'")
    try:
        module = importlib.import_module(module_name)
    except Exception as e:
        if extra is not None and isinstance(e, ModuleNotFoundError):
            raise PolicyError(
                f"{setting} = {extra!r} needs {e.name}, which is not installed: add icelock's extra, in a clone by pip install '.[{extra}]'"
            ) from e
        # Except in Python's own import errors, the text may hold anything.
        why = f"{type(e).__name__}: {e}" if isinstance(e, ImportError | SyntaxError) else type(e).__name__
        raise PolicyError(
            f"{setting} = {path!r}: module {module_name!r} cannot be imported ({why}); install it here, or correct the path"
        ) from e
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        what = "has no such name" if found is None else f"is a {type(found).__name__}"
        raise PolicyError(f"{setting} = {path!r}: expected a class, {class_name!r} in {module_name!r} {what}; name the class itself")
    lacking = [method for method in _METHODS if not callable(getattr(found, method, None))]
    if lacking:
        raise PolicyError(
            f"{setting} = {path!r}: the class lacks {' and '.join(lacking)}; write the methods of icelock.kms.client.KmsClient"
        )
    return found


def _construct(kms_class: type[Any], properties: dict[str, str], setting: str) -> KmsClient:
    try:
        client: KmsClient = kms_class(properties)
    except IcelockError:
        raise
    except Exception as e:
        name = f"{kms_class.__module__}.{kms_class.__qualname__}"
        # The text of a foreign error may hold credentials; it stays in the chained cause.
        raise KmsClientError(
            f"{setting}: {name}(properties) failed with {type(e).__name__}; it must take the catalog's properties as its only argument"
        ) from e
    if not all(callable(getattr(client, method, None)) for method in _METHODS):
        raise KmsClientError(
            f"{setting}: {kms_class.__qualname__}(properties) made a {type(client).__name__} without {' or '.join(_METHODS)}; correct it"
        )
    return client
