"""A catalog's server that is not there: one typed error that names catalog and address, without a password, and keeps its cause."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable

import pytest
import requests
from thrift.transport.TTransport import TTransportException

import icelock
from icelock.catalog.hive.client import MetastoreUnreachableError
from icelock.catalog.rest.http import ServerUnreachableError, may_be_done, not_sent

KEYS = {"encryption.kms-type": "memory", "kms.memory.keys.a": "00" * 16}


@pytest.fixture
def port() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def rest(port: int) -> object:
    return icelock.load_catalog("lake", type="rest", uri=f"http://reader:pass-word@127.0.0.1:{port}/api?token=t-oken", **KEYS)


def of_tokens(port: int) -> object:
    given = {"credential": "reader:pass-word", "oauth2-server-uri": f"http://127.0.0.1:{port}/tokens"}
    return icelock.load_catalog("lake", type="rest", uri=f"http://127.0.0.1:{port}/api", **given, **KEYS)


def hive(port: int) -> object:
    uri = f"thrift://reader:pass-word@127.0.0.1:{port},thrift://127.0.0.1:{port}"
    return icelock.load_catalog("lake", type="hive", uri=uri, **KEYS).list_namespaces()


WITH = {rest: requests.ConnectionError, of_tokens: requests.ConnectionError, hive: TTransportException}


@pytest.mark.parametrize(("load", "library"), WITH.items())
def test_it_is_named_with_its_address_and_the_remedy(port: int, load: Callable[[int], object], library: type[Exception]):
    with pytest.raises(icelock.CatalogUnreachableError) as caught:
        load(port)
    error, text = caught.value, str(caught.value)
    assert isinstance(error, library)
    assert isinstance(error, ConnectionError)
    assert isinstance(error.__cause__, library)
    assert not isinstance(error.__cause__, icelock.CatalogUnreachableError)
    assert "catalog lake: no " in text
    assert f"127.0.0.1:{port}" in text
    assert "correct the catalog's uri" in text
    assert not [secret for secret in ("pass-word", "t-oken", "reader") if secret in text]
    assert str(pickle.loads(pickle.dumps(error))) == text  # noqa: S301


def test_a_commit_that_never_left_is_known_not_to_be_made(port: int):
    with pytest.raises(ServerUnreachableError) as caught:
        rest(port)
    assert not_sent(caught.value)
    assert not may_be_done(caught.value)


def test_both_are_of_the_class_that_the_library_raises():
    assert issubclass(ServerUnreachableError, requests.RequestException)
    assert MetastoreUnreachableError("away").type == TTransportException.NOT_OPEN
    assert not issubclass(icelock.CatalogUnreachableError, icelock.IcelockError)
