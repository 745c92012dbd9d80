"""Requests to a REST catalog's server about tables, through PyIceberg's session, so OAuth2, SigV4, TLS and headers are PyIceberg's.

PyIceberg's answers have its metadata classes, which drop keys; so tables are loaded, created and registered here, with its addresses and
error mapping. A request waits no longer than ``rest.client.connection-timeout-ms`` and ``rest.client.socket-timeout-ms`` (Java's names),
and its answer is bounded (``catalog.rest.http``). The server's settings are filtered (``catalog.rest.settings``).

Not here: commits (``catalog.rest.commit``), rules (``catalog.base``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, Self, TypeVar, cast
from urllib.parse import unquote

from pydantic import BaseModel, ValidationError
from pyiceberg.catalog import TOKEN, WAREHOUSE_LOCATION
from pyiceberg.catalog import rest as ice
from pyiceberg.catalog.rest import _RETRY_ARGS
from pyiceberg.catalog.rest.auth import OAuth2AuthManager, OAuth2TokenProvider
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.catalog.rest.scan_planning import StorageCredential
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.typedef import UTF8, Identifier
from pyiceberg.utils.properties import property_as_bool, property_as_int
from requests import HTTPError, Response, Session
from tenacity import retry

from icelock import properties as names
from icelock.catalog.rest.answer import ConfigAnswer, TableAnswer, json_object, storage_credentials
from icelock.catalog.rest.http import BoundedSender, Limits, one_call
from icelock.catalog.rest.settings import is_of_storage, of_defaults, of_storage, shown, with_storage
from icelock.errors import FormatError, PolicyError

logger = logging.getLogger(__name__)

CONNECT_MS: Final = "rest.client.connection-timeout-ms"
CONNECT_MS_DEFAULT: Final = 60_000
SOCKET_MS: Final = "rest.client.socket-timeout-ms"
SOCKET_MS_DEFAULT: Final = 300_000
_REMEMBERED: Final = 1000

_Ask = TypeVar("_Ask", bound="Callable[..., Any]")


def _again_after_login(ask: _Ask) -> _Ask:
    """Ask once more with a new token if the server refuses the one it got, as PyIceberg does."""
    again = retry(**cast("Any", _RETRY_ARGS))(ask)

    @wraps(ask)
    def asked(*args: Any, **kwargs: Any) -> Any:
        with one_call():
            return again(*args, **kwargs)

    return cast("_Ask", asked)


def _in_pages(name: str) -> Any:
    """Return PyIceberg's method for a listing, all of whose pages count as one answer."""
    ask = _checked(name)

    @wraps(ask)
    def listing(self: RestRequests, *args: Any, **kwargs: Any) -> Any:
        with self._session.send.listing():  # type: ignore[attr-defined]  # a BoundedSender
            return ask(self, *args, **kwargs)

    return listing


def _checked(name: str) -> Any:
    """Return PyIceberg's method, with an error of ours for an invalid answer."""
    ask = getattr(ice.RestCatalog, name)

    @wraps(ask)
    def checked(self: RestRequests, *args: Any, **kwargs: Any) -> Any:
        with answers(name):
            return ask(self, *args, **kwargs)

    return checked


@contextmanager
def answers(what: str) -> Iterator[None]:
    """Raise ``FormatError`` for an answer that PyIceberg cannot read."""
    try:
        yield
    except (ValidationError, RecursionError) as e:
        raise FormatError(f"the REST server's answer to {what} is not what the protocol demands: {str(e)[:500]}") from e


class RestRequests(ice.RestCatalog):
    """PyIceberg's ``RestCatalog`` whose answers about tables are ours; base of ``catalog.rest.RestCatalog``."""

    list_tables = _in_pages("list_tables")
    list_views = _in_pages("list_views")
    list_namespaces = _in_pages("list_namespaces")
    load_namespace_properties = _checked("load_namespace_properties")
    update_namespace_properties = _checked("update_namespace_properties")
    load_view = _checked("load_view")
    register_view = _checked("register_view")

    def __init__(self, name: str, **properties: str) -> None:
        self._warned: set[str] = set()
        self._own: Mapping[str, Any] = dict(properties)
        self._lent: Mapping[str, str] = {}
        self._limits = _limits(properties)
        if properties.get(ice.SNAPSHOT_LOADING_MODE, "all") != "all":
            raise PolicyError(f"catalog {name}: {ice.SNAPSHOT_LOADING_MODE} must be all: expiry and purge have to see every snapshot")
        super().__init__(name, **properties)

    def _config_headers(self, session: Session) -> None:
        # The first thing that PyIceberg does with a session: before a token is asked for.
        BoundedSender(session, self._limits, self.name)
        super()._config_headers(session)

    def _create_session(self) -> Session:
        with answers("the request for a token"):
            session = super()._create_session()
        if isinstance(self._auth_manager, OAuth2AuthManager):
            self._auth_manager.token_provider = BoundedTokens.like(self._auth_manager.token_provider, self._limits, self.name)
        return session

    def _fetch_config(self) -> None:
        """Ask the server for its settings, and take those that it may set, before a session is created with them."""
        asked = {WAREHOUSE_LOCATION: self._own[WAREHOUSE_LOCATION]} if self._own.get(WAREHOUSE_LOCATION) else {}
        with self._create_session() as session:
            response = session.get(self.url(ice.Endpoints.get_config, prefixed=False), params=asked)
        raise_for(response, {})
        answer = ConfigAnswer.parse(response.text)
        defaults = of_defaults(self._own, answer.defaults)
        strange = {*(name for name in answer.ignored_defaults if name not in self._own), *answer.ignored_overrides}
        self._ignore(strange)
        sent = {**defaults, **answer.overrides}
        self._lent = {name: value for name, value in sent.items() if is_of_storage(name)}
        own = {name: value for name, value in self._own.items() if name != ice.SNAPSHOT_LOADING_MODE}
        settings = {**own, **{name: value for name, value in sent.items() if not is_of_storage(name)}}
        self.properties, _ = with_storage(settings, self._lent)
        self._supported_endpoints = set(answer.endpoints)
        if answer.endpoints == ice.DEFAULT_ENDPOINTS and property_as_bool(self.properties, ice.VIEW_ENDPOINTS_SUPPORTED, False):
            self._supported_endpoints |= ice.VIEW_ENDPOINTS
        self._namespace_separator = unquote(self.properties.get(ice.NAMESPACE_SEPARATOR_PROPERTY, ice.DEFAULT_NAMESPACE_SEPARATOR))

    def storage_settings(self, sent: Mapping[str, str]) -> dict[str, Any]:
        """Return the settings of a storage: the client's, those of the server for all tables, and ``sent`` for this one."""
        token = {name: value for name, value in self.properties.items() if name not in self._own and not is_of_storage(name)}
        kept, strange = of_storage(sent)
        settings, alone = with_storage({**token, **self._own}, {**self._lent, **kept})
        self._ignore([name for name in strange if name != TOKEN])
        self._ignore(alone, "an address without a key would get the client's own: set it in the client, or let the server lend keys for it")
        return settings

    def _ignore(self, sent: Iterable[str], why: str = "a server may set what docs/how-to/catalog-rest.md lists, and nothing else") -> None:
        """Warn once of each setting of the server's that is ignored."""
        new = sorted(set(sent) - self._warned)
        if new:
            self._warned.update(new[:_REMEMBERED])
            logger.warning("catalog %s: the REST server sends %s; ignored, because %s", self.name, shown(new), why)

    @_again_after_login
    def _ask_table(self, identifier: Identifier) -> TableAnswer:
        self._check_endpoint(ice.Capability.V1_LOAD_TABLE)
        place = self.url(ice.Endpoints.load_table, **self._split_identifier_for_path(identifier))
        # A cache between here and the server would show an old version: it has to ask.
        return self._answer(self._session.get(place, headers={"Cache-Control": "no-cache"}), identifier, {404: NoSuchTableError})

    @_again_after_login
    def _ask_create(self, identifier: Identifier, request: ice.CreateTableRequest) -> TableAnswer:
        return self._ask_new(identifier, request, ice.Capability.V1_CREATE_TABLE, ice.Endpoints.create_table)

    @_again_after_login
    def _ask_register(self, identifier: Identifier, metadata_location: str) -> TableAnswer:
        request = ice.RegisterTableRequest(name=identifier[-1], metadata_location=metadata_location, overwrite=False)
        return self._ask_new(identifier, request, ice.Capability.V1_REGISTER_TABLE, ice.Endpoints.register_table)

    def _ask_new(self, identifier: Identifier, request: BaseModel, capability: ice.Endpoint, endpoint: str) -> TableAnswer:
        self._check_endpoint(capability)
        place = self.url(endpoint, namespace=self._split_identifier_for_path(identifier)["namespace"])
        response = self._session.post(place, data=request.model_dump_json().encode(UTF8))
        return self._answer(response, identifier, {409: TableAlreadyExistsError, 404: NoSuchNamespaceError})

    @_again_after_login
    def _ask_commit(self, identifier: Identifier, body: bytes, config: Mapping[str, Any]) -> Response:
        """Post a commit; return the response whatever its status, unless it asks to log in again."""
        self._check_endpoint(ice.Capability.V1_UPDATE_TABLE)
        token = config.get(TOKEN)
        headers = {ice.AUTHORIZATION_HEADER: f"{ice.BEARER_PREFIX} {token}"} if token else {}
        place = self.url(ice.Endpoints.update_table, **self._split_identifier_for_path(identifier))
        response = self._session.post(place, data=body, headers=headers)
        if response.status_code in {401, 419}:
            raise_for(response, {})
        return response

    @_again_after_login
    def _ask_credentials(self, identifier: Identifier) -> tuple[StorageCredential, ...]:
        self._check_endpoint(ice.Capability.V1_LOAD_CREDENTIALS)
        response = self._session.get(self.url(ice.Endpoints.load_credentials, **self._split_identifier_for_path(identifier)))
        raise_for(response, {404: NoSuchTableError})
        what = f"about credentials for table {'.'.join(identifier)}"
        kept, strange = storage_credentials(json_object(response.text, what=what).get("storage-credentials"), what=what)
        self._ignore(strange)
        return kept

    def _answer(self, response: Response, identifier: Identifier, errors: dict[int, type[Exception]]) -> TableAnswer:
        raise_for(response, errors)
        answer = TableAnswer.parse(response.text, table=".".join(identifier))
        self._ignore(answer.ignored)
        return answer


class BoundedTokens(OAuth2TokenProvider):
    """PyIceberg's provider of OAuth2 tokens with a bounded session: its own asks without a time-out, and takes an answer of any size.

    Safe to share between threads.
    """

    _session: Session

    @classmethod
    def like(cls, given: OAuth2TokenProvider, limits: Limits, catalog: str) -> Self:
        """Return a provider with the settings of another one."""
        made = cls(given.client_id, given.client_secret, given.token_url, given.scope, given.refresh_margin, given.expires_in)
        made._session = Session()
        BoundedSender(made._session, limits, catalog)
        return made

    def _refresh_token(self) -> None:
        data = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        response = self._session.post(self.token_url, data=data, headers={"Authorization": self._client_secret_header})
        response.raise_for_status()
        try:
            answer = response.json()
            token, seconds = str(answer["access_token"]), int(answer.get("expires_in", self.expires_in))
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as e:
            raise FormatError(
                f"{self.token_url} did not answer with access_token and expires_in (or set expires_in in the catalog's auth)"
            ) from e
        self._token, self._expires_at = token, int(time.monotonic()) + seconds - self.refresh_margin


def raise_for(response: Response, errors: dict[int, type[Exception]]) -> None:
    """Raise PyIceberg's error unless a response is a success."""
    try:
        response.raise_for_status()
    except HTTPError as e:
        _handle_non_200_response(e, errors)


def _limits(properties: Mapping[str, Any]) -> Limits:
    given = dict(properties)
    connect = property_as_int(given, CONNECT_MS, CONNECT_MS_DEFAULT) or CONNECT_MS_DEFAULT
    silence = property_as_int(given, SOCKET_MS, SOCKET_MS_DEFAULT) or SOCKET_MS_DEFAULT
    answer = names.positive_number(given, names.REST_ANSWER_TIMEOUT, silence)
    size = names.positive_number(given, names.REST_MAX_ANSWER, names.REST_MAX_ANSWER_DEFAULT)
    return Limits(connect=connect / 1000, silence=silence / 1000, answer=answer / 1000, size=size)
