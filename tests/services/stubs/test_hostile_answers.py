"""Answers of a hostile server: without end, of any size, in no known form, or from elsewhere. Each ends in time, and is a known error."""

from __future__ import annotations

import gzip
import itertools
import json
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitStateUnknownException, RESTError
from requests import RequestException

from icelock.errors import FormatError, PolicyError
from tests.helpers.tables import ids
from tests.lakes.sqlite import KEYED, people
from tests.lakes.stub import StubLake
from tests.servers.rest_stub import RestStub

pytestmark = pytest.mark.turns(3)
TOO_LONG_SECONDS = 30
BOUNDS = {"rest.client.socket-timeout-ms": "1500", "icelock.rest.max-answer-bytes": "1000000"}
HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n"


def drip(*start: bytes, each: bytes = b" ") -> Callable[[Any], None]:
    """Send the start, and then a little now and then, never so late that the socket's time-out ends it."""

    def send(file: Any) -> None:
        file.write(b"".join(start))
        for _ in range(200):
            file.write(each)
            time.sleep(0.1)

    return send


def flood(start: bytes, each: bytes) -> Callable[[Any], None]:
    def send(file: Any) -> None:
        file.write(start)
        for _ in range(400_000_000 // len(each)):
            file.write(each)

    return send


def packed(data: bytes, coding: str) -> bytes:
    return HEAD + f"Content-Encoding: {coding}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def plain(data: bytes, kind: str = "application/json") -> bytes:
    return f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


BAD: dict[str, Any] = {
    "status line drips": drip(b"HTTP/1.1 2", each=b"0"),
    "headers drip": drip(HEAD, each=b"X: y\r\n"),
    "body drips": drip(HEAD, b"Content-Length: 100000\r\n\r\n{"),
    "chunks drip": drip(HEAD, b"Transfer-Encoding: chunked\r\n\r\n", each=b"1\r\n \r\n"),
    "100 Continue for ever": drip(each=b"HTTP/1.1 100 Continue\r\n\r\n"),
    "102 Processing for ever": drip(each=b"HTTP/1.1 102 Processing\r\n\r\n"),
    "101 to another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    "300 MB with a length": flood(HEAD + b"Content-Length: 300000000\r\n\r\n", b" " * 65_536),
    "chunks without end": flood(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"8000\r\n" + b" " * 0x8000 + b"\r\n"),
    "a chunk's size without end": flood(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x" * 65_536),
    "no length, no end": flood(HEAD + b"\r\n", b" " * 65_536),
    "headers without end": flood(HEAD, b"X: " + b"y" * 1000 + b"\r\n"),
    "a header line without end": flood(HEAD + b"X: ", b"y" * 65_536),
    "gzip bomb": packed(gzip.compress(b" " * 50_000_000), "gzip"),
    "deflate bomb": packed(zlib.compress(b" " * 50_000_000), "deflate"),
    "gzip of gzip": packed(gzip.compress(gzip.compress(b"{}")), "gzip, gzip"),
    "unknown packing": packed(b"{}", "br"),
    "no gzip": packed(b"{}", "gzip"),
    "gzip cut off": packed(gzip.compress(b"{}" * 1000)[:-9], "gzip"),
    "200,000 brackets": plain(b"[" * 200_000),
    "nested objects": plain(b'{"a":' * 100_000),
    "HTML": plain(b"<html>Please log in</html>", "text/html"),
    "empty": plain(b""),
    "no content": b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
    "no UTF-8": plain(b'{"metadata": "\xff\xfe"}'),
    "a list": plain(b"[]"),
    "a number of many digits": plain(b'{"metadata": ' + b"1" * 10_000 + b"}"),
    "cut off": HEAD + b"Content-Length: 5000\r\n\r\n{",
    "no HTTP": b"+OK POP3\r\n",
    "a status of letters": b"HTTP/1.1 OK\r\n\r\n",
}


@pytest.fixture
def catalog(lake: StubLake) -> Any:
    return lake.catalog(**BOUNDS)


@pytest.mark.parametrize("what", BAD)
def test_a_bad_answer_to_a_look_ends_in_time_with_an_error_of_a_known_kind(what: str, lake: StubLake, stub: RestStub, catalog: Any) -> None:
    lake.table(rows=1, catalog=catalog)
    stub.fail("GET", "/tables/t", when="before", how=BAD[what])
    began = time.monotonic()
    with pytest.raises((FormatError, RequestException)) as caught:
        catalog.load_table("db.t")
    assert time.monotonic() - began < TOO_LONG_SECONDS
    assert len(str(caught.value)) < 2000
    assert ids(catalog.load_table("db.t")) == [0], "the next answer is read"


@pytest.mark.parametrize("status", ["100 Continue", "102 Processing", "103 Early Hints"])
def test_what_goes_before_an_answer_is_not_the_answer(status: str, lake: StubLake, stub: RestStub, catalog: Any) -> None:
    """RFC 9110, 15.2. The next request must not get the answer to this one either, on a connection that is kept."""
    lake.table(rows=1, catalog=catalog)
    catalog.create_table("db.u", people().schema, properties=KEYED)
    first = json.dumps(stub.loaded(stub.tables["db", "t"])).encode()
    stub.fail("GET", "/tables/t", when="before", how=lambda out: out.write(before(status) + HEAD + sized(first)))
    assert ids(catalog.load_table("db.t")) == [0]
    assert catalog.load_table("db.u").name() == ("db", "u")
    assert ids(catalog.load_table("db.u")) == []


def before(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nLink: </x>; rel=preload\r\n\r\n".encode() * 3


def sized(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


TOO_LARGE = ["300 MB with a length", "chunks without end", "no length, no end", "gzip bomb", "deflate bomb"]


@pytest.mark.parametrize("what", TOO_LARGE)
def test_what_is_too_large_is_said_to_be_so(what: str, lake: StubLake, stub: RestStub, catalog: Any) -> None:
    lake.table(catalog=catalog)
    stub.fail("GET", "/tables/t", when="before", how=BAD[what])
    with pytest.raises(FormatError, match=r"/namespaces/db/tables/t is too large: icelock\.rest\.max-answer-bytes is 1000000 bytes"):
        catalog.load_table("db.t")


@pytest.mark.parametrize("what", BAD)
def test_a_bad_answer_to_a_commit_that_was_made_counts_once(what: str, lake: StubLake, stub: RestStub, catalog: Any) -> None:
    table = lake.table(rows=1, catalog=catalog)
    stub.fail("POST", "/tables/t", when="after", how=BAD[what])
    table.append(people(1, 1))
    assert ids(lake.catalog().load_table("db.t")) == [0, 1]
    assert len(lake.kept["snapshots"]) == 2


@pytest.mark.parametrize("what", ["body drips", "300 MB with a length", "gzip bomb", "200,000 brackets", "HTML", "no content"])
def test_a_bad_answer_to_a_commit_that_was_not_made_is_unknown(what: str, lake: StubLake, stub: RestStub, catalog: Any) -> None:
    table = lake.table(rows=1, catalog=catalog)
    files = set(lake.files())
    stub.fail("POST", "/tables/t", when="before", how=BAD[what])
    with pytest.raises(CommitStateUnknownException, match="nothing was deleted: look whether it has snapshot"):
        table.append(people(1, 1))
    assert len([path for path in set(lake.files()) - files if path.endswith(".parquet")]) == 1


@pytest.mark.parametrize("what", BAD)
def test_a_bad_answer_to_the_first_request_ends_in_time(what: str, lake: StubLake, stub: RestStub) -> None:
    stub.fail("GET", "/v1/config", when="before", how=BAD[what])
    began = time.monotonic()
    with pytest.raises((FormatError, RequestException)):
        lake.catalog(**BOUNDS)
    assert time.monotonic() - began < TOO_LONG_SECONDS


@pytest.mark.parametrize("what", ["body drips", "gzip bomb", "200,000 brackets", "HTML", "no content"])
@pytest.mark.parametrize("auth", ["legacy", "oauth2"])
def test_a_bad_answer_of_the_token_server_ends_in_time(auth: str, what: str, lake: StubLake, stub: RestStub) -> None:
    place = f"{stub.uri}/v1/oauth/tokens"
    new: dict[str, Any] = {"type": "oauth2", "oauth2": {"client_id": "c", "client_secret": "s", "token_url": place}}
    how = {"credential": "c:s", "oauth2-server-uri": place} if auth == "legacy" else {"auth": new}
    stub.fail("POST", "/oauth/tokens", when="before", how=BAD[what])
    began = time.monotonic()
    with pytest.raises((FormatError, RequestException)):
        lake.catalog(**BOUNDS, **how)
    assert time.monotonic() - began < TOO_LONG_SECONDS
    assert lake.catalog(**BOUNDS, **how).list_tables("db") == []


def _pages(stub: RestStub, tokens: Iterator[str]) -> None:
    handle = stub.handle
    answer = {"identifiers": [{"namespace": ["db"], "name": "t"}], "namespaces": [["db"]]}
    stub.handle = lambda method, path, body: (
        (200, {**answer, "next-page-token": next(tokens)})
        if method == "GET" and path.endswith(("tables", "namespaces"))
        else handle(method, path, body)
    )


@pytest.mark.parametrize("tokens", [itertools.repeat("a"), itertools.cycle("ab")], ids=["same", "circle"])
def test_pages_that_go_round_in_circles_are_a_format_error(tokens: Iterator[str], stub: RestStub, catalog: Any) -> None:
    _pages(stub, tokens)
    for ask in (lambda: catalog.list_tables("db"), catalog.list_namespaces):
        with pytest.raises(FormatError, match="round in circles"):
            ask()
    assert len(stub.requests) < 20


def test_pages_without_end_end_in_time(stub: RestStub, catalog: Any) -> None:
    _pages(stub, map(str, itertools.count()))
    began = time.monotonic()
    with pytest.raises((FormatError, RequestException)):
        catalog.list_tables("db")
    assert time.monotonic() - began < TOO_LONG_SECONDS


def test_pages_are_read_to_their_end(stub: RestStub, catalog: Any) -> None:
    _pages(stub, iter(["1", "2", ""]))
    assert catalog.list_tables("db") == [("db", "t")] * 3


def test_a_packed_answer_is_read(lake: StubLake, stub: RestStub, catalog: Any) -> None:
    lake.table(rows=1, catalog=catalog)
    body = json.dumps(stub.loaded(stub.tables["db", "t"])).encode()
    for answer in (packed(gzip.compress(body), "gzip"), packed(zlib.compress(body), "deflate"), plain(body)):
        stub.fail("GET", "/tables/t", when="before", how=answer)
        assert ids(catalog.load_table("db.t")) == [0]


@pytest.mark.parametrize("value", ["0", "-1", "x", ""])
@pytest.mark.parametrize("name", ["icelock.rest.max-answer-bytes", "icelock.rest.answer-timeout-ms"])
def test_a_bound_that_is_no_number_is_refused(name: str, value: str, lake: StubLake) -> None:
    with pytest.raises(PolicyError, match=name):
        lake.catalog(**{name: value})


def test_a_longer_time_for_a_whole_answer_can_be_given(lake: StubLake, stub: RestStub) -> None:
    lake.table(rows=1)
    body = json.dumps(stub.loaded(stub.tables["db", "t"])).encode()

    def slowly(file: Any) -> None:
        file.write(plain(body)[: -len(body)])
        for start in range(0, len(body), len(body) // 10):
            time.sleep(0.1)
            file.write(body[start : start + len(body) // 10])

    bounds = {"rest.client.socket-timeout-ms": "500", "icelock.rest.answer-timeout-ms": "60000"}
    stub.fail("GET", "/tables/t", when="before", how=slowly)
    assert ids(lake.catalog(**bounds).load_table("db.t")) == [0]


def _moved(status: int, place: str) -> bytes:
    return f"HTTP/1.1 {status} Moved\r\nConnection: close\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode()


@pytest.mark.parametrize("status", [301, 302, 303])
@pytest.mark.parametrize(
    "change", [lambda table: table.append(people(1, 1)), lambda table: table.transaction().set_properties({"a": "b"}).commit_transaction()]
)
def test_a_commit_is_not_turned_into_a_look(change: Any, status: int, lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1)
    kept, files = lake.kept, set(lake.files())
    stub.fail("POST", "/tables/t", when="before", how=_moved(status, f"{stub.uri}/v1/namespaces/db/tables/t"))
    with pytest.raises(CommitStateUnknownException, match=f"not followed, because {status} would turn it into GET"):
        change(table)
    assert lake.kept == kept
    assert files <= set(lake.files()), "a redirect is no word of a server that it did nothing"
    lake.catalog().load_table("db.t").append(people(1, 1))
    assert ids(lake.catalog().load_table("db.t")) == [0, 1]


@pytest.mark.parametrize("status", [301, 307])
def test_a_commit_that_was_made_and_sent_on_all_the_same_counts(status: int, lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1)
    stub.fail("POST", "/tables/t", when="after", how=_moved(status, "http://attacker.example/"))
    table.append(people(1, 1))
    assert ids(table) == [0, 1]


@pytest.mark.parametrize("status", [307, 308])
def test_a_commit_is_sent_on_within_the_server(status: int, lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1)
    stub.fail("POST", "/tables/t", when="before", how=_moved(status, "/v1/namespaces/db/tables/t"))
    table.append(people(1, 1))
    assert ids(lake.catalog().load_table("db.t")) == [0, 1]
    assert len(lake.kept["snapshots"]) == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_nothing_is_sent_to_another_server(status: int, lake: StubLake, stub: RestStub, tmp_path: Path) -> None:
    table = lake.table(rows=1, catalog=lake.catalog(token="secret", **{"header.x-api-key": "secret"}))
    catalog = table.catalog
    with RestStub(tmp_path / "other") as other:
        uses: dict[tuple[str, str], Any] = {
            ("GET", "/tables/t"): lambda: catalog.load_table("db.t"),
            ("POST", "/tables/t"): lambda: table.append(people(1, 1)),
            ("POST", "/tables"): lambda: catalog.create_table("db.u", people().schema, properties={"encryption.key-id": "keyA"}),
            ("DELETE", "/tables/t"): lambda: catalog.drop_table("db.t"),
            ("GET", "/config"): lambda: lake.catalog(token="secret"),
            ("POST", "/oauth/tokens"): lambda: lake.catalog(credential="c:secret", **{"oauth2-server-uri": f"{stub.uri}/v1/oauth/tokens"}),
        }
        for (method, path), use in uses.items():
            stub.fail(method, path, when="before", how=_moved(status, f"{other.uri}{path}"))
            with pytest.raises((RESTError, FormatError, CommitStateUnknownException), match="not followed"):
                use()
        assert other.requests == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_look_is_sent_on_within_the_server(status: int, lake: StubLake, stub: RestStub) -> None:
    lake.table(rows=1)
    stub.fail("GET", "/tables/t", when="before", how=_moved(status, "/v1/namespaces/db/tables/t?x=1"))
    assert ids(lake.catalog().load_table("db.t")) == [0]


def test_a_look_that_is_sent_on_for_ever_is_an_error(lake: StubLake, stub: RestStub) -> None:
    lake.table(rows=1)
    stub.fail("GET", "/tables/t", when="before", how=_moved(302, "/v1/namespaces/db/tables/t"), times=50)
    with pytest.raises(FormatError, match="round in circles"):
        lake.catalog().load_table("db.t")
    assert len(stub.requests) < 20
