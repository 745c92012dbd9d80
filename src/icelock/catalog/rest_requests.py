"""Requests to a REST catalog's server about tables, through PyIceberg's session, so OAuth2, SigV4, TLS and headers are PyIceberg's.

PyIceberg's own answers have its metadata classes, which know no keys; so load, create and register are asked here, with its
addresses and error mapping. A request waits no longer than ``rest.client.connection-timeout-ms`` and ``rest.client.socket-timeout-ms``
(Java's names) say.

Not here: commits (``catalog.rest_commit``), rules (``catalog.base``).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pyiceberg.catalog import TOKEN
from pyiceberg.catalog.rest import (
    _RETRY_ARGS,
    AUTHORIZATION_HEADER,
    BEARER_PREFIX,
    SNAPSHOT_LOADING_MODE,
    Capability,
    CreateTableRequest,
    Endpoints,
    RegisterTableRequest,
)
from pyiceberg.catalog.rest import RestCatalog as IcebergRestCatalog
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.typedef import UTF8
from pyiceberg.utils.properties import property_as_int
from requests import HTTPError, Response, Session
from tenacity import retry

from icelock.catalog.rest_answer import TableAnswer, is_own
from icelock.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyiceberg.typedef import Identifier

logger = logging.getLogger(__name__)

CONNECT_MS: Final = "rest.client.connection-timeout-ms"
CONNECT_MS_DEFAULT: Final = 60_000
SOCKET_MS: Final = "rest.client.socket-timeout-ms"
SOCKET_MS_DEFAULT: Final = 300_000


_Ask = TypeVar("_Ask", bound="Callable[..., Any]")


def _again_after_login(ask: _Ask) -> _Ask:
    """Ask once more with a new token when the server does not know the one it was given, as PyIceberg does."""
    return cast("_Ask", retry(**cast("Any", _RETRY_ARGS))(ask))


class RestRequests(IcebergRestCatalog):
    """PyIceberg's ``RestCatalog`` whose answers about tables are ours; base of ``catalog.rest.RestCatalog``."""

    def __init__(self, name: str, **properties: str) -> None:
        self._warned: set[str] = set()
        if properties.get(SNAPSHOT_LOADING_MODE, "all") != "all":
            msg = f"catalog {name}: {SNAPSHOT_LOADING_MODE} must be all: expiry and purge have to see every snapshot"
            raise PolicyError(msg)
        super().__init__(name, **properties)

    def _create_session(self) -> Session:
        session = super()._create_session()
        connect = property_as_int(self.properties, CONNECT_MS, CONNECT_MS_DEFAULT) or CONNECT_MS_DEFAULT
        answer = property_as_int(self.properties, SOCKET_MS, SOCKET_MS_DEFAULT) or SOCKET_MS_DEFAULT
        session.request = partial(session.request, timeout=(connect / 1000, answer / 1000))  # type: ignore[method-assign]
        return session

    def _fetch_config(self) -> None:
        given = dict(self.properties)
        super()._fetch_config()
        self._ignore(name for name, value in self.properties.items() if is_own(name) and given.get(name) != value)
        asked = {name: value for name, value in self.properties.items() if not is_own(name) and name != SNAPSHOT_LOADING_MODE}
        self.properties = {**asked, **{name: value for name, value in given.items() if is_own(name)}}

    def _ignore(self, sent: Iterable[str]) -> None:
        """Warn once of each setting that the server has no say in."""
        new = sorted(set(sent) - self._warned)
        if new:
            self._warned.update(new)
            logger.warning(
                "catalog %s: the REST server sends %s; ignored, because encryption settings and classes to load come from the client alone",
                self.name,
                ", ".join(new),
            )

    @_again_after_login
    def _ask_table(self, identifier: Identifier) -> TableAnswer:
        self._check_endpoint(Capability.V1_LOAD_TABLE)
        place = self.url(Endpoints.load_table, **self._split_identifier_for_path(identifier))
        return self._answer(self._session.get(place), identifier, {404: NoSuchTableError})

    @_again_after_login
    def _ask_create(self, identifier: Identifier, request: CreateTableRequest) -> TableAnswer:
        self._check_endpoint(Capability.V1_CREATE_TABLE)
        place = self.url(Endpoints.create_table, namespace=self._split_identifier_for_path(identifier)["namespace"])
        response = self._session.post(place, data=request.model_dump_json().encode(UTF8))
        return self._answer(response, identifier, {409: TableAlreadyExistsError, 404: NoSuchNamespaceError})

    @_again_after_login
    def _ask_register(self, identifier: Identifier, metadata_location: str) -> TableAnswer:
        self._check_endpoint(Capability.V1_REGISTER_TABLE)
        request = RegisterTableRequest(name=identifier[-1], metadata_location=metadata_location, overwrite=False)
        place = self.url(Endpoints.register_table, namespace=self._split_identifier_for_path(identifier)["namespace"])
        response = self._session.post(place, data=request.model_dump_json().encode(UTF8))
        return self._answer(response, identifier, {409: TableAlreadyExistsError, 404: NoSuchNamespaceError})

    @_again_after_login
    def _ask_commit(self, identifier: Identifier, body: bytes, config: Mapping[str, Any]) -> Response:
        """Post a commit; the response is returned whatever its status, but for one that asks to log in again."""
        self._check_endpoint(Capability.V1_UPDATE_TABLE)
        token = config.get(TOKEN)
        headers = {AUTHORIZATION_HEADER: f"{BEARER_PREFIX} {token}"} if token else {}
        place = self.url(Endpoints.update_table, **self._split_identifier_for_path(identifier))
        response = self._session.post(place, data=body, headers=headers)
        if response.status_code in {401, 419}:
            raise_for(response, {})
        return response

    def _answer(self, response: Response, identifier: Identifier, errors: dict[int, type[Exception]]) -> TableAnswer:
        raise_for(response, errors)
        answer = TableAnswer.parse(response.text, table=".".join(identifier))
        self._ignore(answer.ignored)
        return answer


def raise_for(response: Response, errors: dict[int, type[Exception]]) -> None:
    """Raise PyIceberg's error for a response that is none of success."""
    try:
        response.raise_for_status()
    except HTTPError as e:
        _handle_non_200_response(e, errors)
