"""OAuth2 tokens for a REST catalog (``auth.type=oauth2``), asked for with the bounds of all its requests.

PyIceberg's provider asks without a time-out and takes an answer of any size. Where tokens come from is the client's to say.

Not here: the bounds (``catalog.rest.http``).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyiceberg.catalog.rest.auth import OAuth2TokenProvider
from requests import Session

from icelock.catalog.rest.http import BoundedSender
from icelock.errors import FormatError

if TYPE_CHECKING:
    from typing import Self

    from icelock.catalog.rest.http import Limits


class BoundedTokens(OAuth2TokenProvider):
    """PyIceberg's provider with a bounded session. Safe to share between threads."""

    _session: Session

    @classmethod
    def like(cls, given: OAuth2TokenProvider, limits: Limits) -> Self:
        """Return a provider with the settings of another one."""
        made = cls(given.client_id, given.client_secret, given.token_url, given.scope, given.refresh_margin, given.expires_in)
        made._session = Session()
        BoundedSender(made._session, limits)
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
