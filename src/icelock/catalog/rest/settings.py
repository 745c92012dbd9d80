"""Which settings the server of a REST catalog may set.

A server is trusted with metadata only. Of the settings that it sends (defaults and overrides of ``/v1/config``, a table's ``config``,
storage credentials) only those count that are listed here, in the form given here; all others are ignored, and their names logged in one
line. So no class is loaded, no file opened, no check of certificates switched off, and no request or credential sent elsewhere because a
server says so.

Storage: a server's address counts only with a key of the server's. Without one the *client's* key, token or signature would be sent there,
so it is ignored unless the client has the same address; and if the server sends a key, none of the client's is used. Regions, accounts and
projects are names of the provider, not addresses, and count alone.

Not here: requests (``catalog.rest.requests``), a table's properties, which configure no storage (``catalog.rest.answer``).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import TOKEN, WAREHOUSE_LOCATION
from pyiceberg.catalog.rest import NAMESPACE_SEPARATOR_PROPERTY, PAGE_SIZE, PREFIX, VIEW_ENDPOINTS_SUPPORTED

_SHOWN: Final = 50
_NAME_LENGTH: Final = 80


def _like(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda value: compiled.fullmatch(value) is not None


def _is_path(value: str) -> bool:
    """Whether it is a path that stays below its address."""
    steps = unquote(value).split("/")
    return re.fullmatch(r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]{0,1024}", value) is not None and not {".", ".."} & set(steps)


def _is_separator(value: str) -> bool:
    return re.fullmatch(r"[^/?#\\%\s\x00-\x1e\x7f]{1,8}", unquote(value)) is not None and len(value) <= _NAME_LENGTH


def _is_address(value: str) -> bool:
    """Whether it is a URL or host of a storage, and not one of the machine's own network (link-local: metadata services)."""
    if re.fullmatch(r"[\x21-\x7e]{1,1024}", value) is None:
        return False
    try:
        parts = urlsplit(value if "://" in value else f"https://{value}")
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if parts.scheme not in {"http", "https"} or not host or "@" in parts.netloc or parts.query or parts.fragment:
        return False
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        # A name, but not another way to write an IP address (0xa9fea9fe, 2852039166).
        return re.fullmatch(r"[0-9.]+|0x.*", host.rsplit(".", 1)[-1]) is None and host != "metadata.google.internal"
    mapped = getattr(number, "ipv4_mapped", None) or number
    return not mapped.is_link_local and str(mapped) != "fd00:ec2::254"


def _is_google_token(value: str) -> bool:
    """Whether it is a token: fsspec also accepts names of files and of ways to log in."""
    ways = {"anon", "browser", "cache", "cloud", "google_default"}
    return re.fullmatch(r"[A-Za-z0-9._~+=-]{4,8192}", value) is not None and value not in ways and not value.endswith(".json")


_text = _like(r"[\x21-\x7e]{1,16384}")
_number = _like(r"[0-9]{1,18}")
_truth = _like(r"(?i)true|false")
_label = _like(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")

_CATALOG: Final[Mapping[str, Callable[[str], bool]]] = {
    WAREHOUSE_LOCATION: _like(r"[^\x00-\x1f\x7f]{1,4096}"),
    PREFIX: _is_path,
    TOKEN: _text,
    PAGE_SIZE: _like(r"[1-9][0-9]{0,8}"),
    NAMESPACE_SEPARATOR_PROPERTY: _is_separator,
    VIEW_ENDPOINTS_SUPPORTED: _truth,
}
_STORAGE: Final[Mapping[str, Callable[[str], bool]]] = {
    "client.region": _label,
    "s3.region": _label,
    "s3.endpoint": _is_address,
    "s3.path-style-access": _truth,
    "s3.force-virtual-addressing": _truth,
    "s3.signer.endpoint": _is_path,
    "s3.access-key-id": _text,
    "s3.secret-access-key": _text,
    "s3.session-token": _text,
    "s3.session-token-expires-at-ms": _number,
    "s3.anonymous": _like("(?i)true"),
    "gcs.project-id": _like(r"[A-Za-z0-9.:_-]{1,100}"),
    "gcs.service.host": _is_address,
    "gcs.oauth2.token": _is_google_token,
    "gcs.oauth2.token-expires-at": _number,
    "adls.account-name": _like(r"[a-z0-9]{3,24}"),
    "adls.account-host": _is_address,
    "adls.blob-storage-authority": _is_address,
    "adls.dfs-storage-authority": _is_address,
    "adls.blob-storage-scheme": _like("https?"),
    "adls.dfs-storage-scheme": _like("https?"),
    "adls.account-key": _text,
    "adls.token": _text,
    "adls.sas-token": _text,
    "adls.sas-token-expires-at-ms": _number,
}
# With an account's host behind it.
_OF_ACCOUNTS: Final = re.compile(r"(adls\.sas-token(?:-expires-at-ms)?)\.[A-Za-z0-9.-]{1,253}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A kind of storage. ``keys`` of the server's own make its ``addresses`` count; ``secrets`` are the client's, not used then."""

    keys: tuple[str, ...]
    addresses: tuple[str, ...]
    lent: tuple[str, ...]
    secrets: tuple[str, ...]


_KINDS: Final = (
    _Kind(
        keys=("s3.access-key-id", "s3.anonymous"),
        addresses=("s3.endpoint",),
        lent=("s3.access-key-id", "s3.secret-access-key", "s3.session-token", "s3.anonymous"),
        secrets=(
            *(f"{of}.{what}" for of in ("s3", "client") for what in ("access-key-id", "secret-access-key", "session-token")),
            *(f"{of}.{what}" for of in ("s3", "client") for what in ("profile-name", "role-arn", "role-session-name")),
            "s3.anonymous",
        ),
    ),
    _Kind(
        keys=("gcs.oauth2.token",),
        addresses=("gcs.service.host",),
        lent=("gcs.oauth2.token",),
        secrets=("gcs.oauth2.token", "gcs.oauth2.token-expires-at"),
    ),
    # Arrow's file system knows neither adls.token nor SAS tokens of accounts: it would use what the machine has.
    _Kind(
        keys=("adls.sas-token", "adls.account-key"),
        addresses=(
            "adls.account-host",
            *(f"adls.{of}-storage-{what}" for of in ("blob", "dfs") for what in ("authority", "scheme")),
        ),
        lent=("adls.sas-token", "adls.account-key", "adls.token"),
        secrets=tuple(
            f"adls.{what}"
            for what in (
                "connection-string", "credential", "account-key", "sas-token", "tenant-id", "client-id", "client-secret", "token", "anon"
            )
        ),
    ),
)  # fmt: skip


def of_catalog(sent: Any) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what counts of the defaults or overrides of ``/v1/config``, and the names of the rest."""
    return _sorted_out(sent, {**_CATALOG, **_STORAGE})


def of_table(sent: Any) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what counts of a table's ``config``, and the names of the rest."""
    return _sorted_out(sent, {TOKEN: _text, **_STORAGE})


def of_storage(sent: Any) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what counts of storage credentials, and the names of the rest."""
    return _sorted_out(sent, _STORAGE)


def is_of_storage(name: str) -> bool:
    """Whether a setting that a server may send is one of the storage."""
    return _without_account(name) in _STORAGE


def of_defaults(own: Mapping[str, Any], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the defaults for settings that the client has not; all keys of a storage count as one setting."""
    strange: set[str] = set()
    for kind in _KINDS:
        if any(_without_account(name) in kind.secrets for name in own):
            strange |= {name for name in defaults if _without_account(name) in kind.lent}
    return {name: value for name, value in defaults.items() if name not in own and name not in strange}


def with_storage(own: Mapping[str, Any], sent: Mapping[str, str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the client's settings with the storage settings that a server sent, and the names of ignored addresses.

    Args:
        own: the client's settings.
        sent: what ``of_catalog``, ``of_table`` and ``of_storage`` returned, later ones last.
    """
    settings, lent, ignored = dict(own), dict(sent), []
    for kind in _KINDS:
        if not any(name in lent for name in kind.keys):
            strange = [name for name in kind.addresses if name in lent and lent[name] != own.get(name)]
            ignored += strange
            for name in strange:
                del lent[name]
        if any(_without_account(name) in kind.lent for name in lent):
            settings = {name: value for name, value in settings.items() if _without_account(name) not in kind.secrets}
    return {**settings, **lent}, tuple(ignored)


def shown(ignored: Iterable[str]) -> str:
    """Return names that come from a server, for one line of the log."""
    all_names = sorted(set(ignored))
    text = ", ".join(ascii(name[:_NAME_LENGTH])[1:-1] for name in all_names[:_SHOWN])
    return text if len(all_names) <= _SHOWN else f"{text} and {len(all_names) - _SHOWN} more"


def _sorted_out(sent: Any, may: Mapping[str, Callable[[str], bool]]) -> tuple[dict[str, str], tuple[str, ...]]:
    kept: dict[str, str] = {}
    ignored: list[str] = []
    for name, value in sent.items():
        text, right = _as_text(value), may.get(_without_account(name))
        if text is None or right is None or not right(text):
            ignored.append(name)
        else:
            kept[name] = text
    return kept, tuple(ignored)


def _without_account(name: str) -> str:
    of_account = _OF_ACCOUNTS.fullmatch(name)
    return of_account[1] if of_account else name


def _as_text(value: Any) -> str | None:
    """Return a setting as text; numbers and truth values as in JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int)):
        return str(value)
    return None
