"""A double of Azure Key Vault over HTTPS, as far as ``AzureKms`` and Java's client go: challenges, wrapkey, unwrapkey, versions, get.

What it answers is what the REST API's documentation says. ``DoubleAzureKms`` is ``AzureKms`` with a client that trusts it.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
import select
import socket
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from azure.core.credentials import AccessToken
from azure.keyvault.keys import KeyClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from icelock.kms.azure import AzureKms

HOST = "lake.vault.azure.net"
OAEP = padding.OAEP(mgf=padding.MGF1(hashes.SHA256()), algorithm=hashes.SHA256(), label=None)
RIGHTS = {"writer": {"wrapkey", "unwrapkey", "list", "get"}, "reader": {"unwrapkey"}, "lister": {"unwrapkey", "list"}}
PATH = re.compile(r"/keys/([0-9A-Za-z-]+)/*([0-9a-f]{32})?/*(wrapkey|unwrapkey|versions)?")


class Refusal(Exception):  # noqa: N818 - an answer, not an error
    def __init__(self, status, code, inner="", message="") -> None:
        super().__init__(code)
        error = {"code": code, "message": message, **({"innererror": {"code": inner}} if inner else {})}
        self.answer = (status, {"error": error})


@dataclass
class Version:
    name: str
    key: rsa.RSAPrivateKey
    created: int
    enabled: bool = True

    def used(self, call: str, body: dict[str, str]) -> bytes:
        if not self.enabled:
            raise Refusal(403, "Forbidden", "KeyDisabled", f"Operation {call} is not allowed on a disabled key.")
        if body.get("alg") != "RSA-OAEP-256":
            raise Refusal(400, "BadParameter", "", "The algorithm is not allowed for this key.")
        value = _decoded(body["value"])
        if call == "wrapkey":
            return self.key.public_key().encrypt(value, OAEP)
        try:
            return self.key.decrypt(value, OAEP)
        except ValueError:
            raise Refusal(400, "BadParameter", "", "The parameter is incorrect.") from None


@dataclass
class Key:
    versions: list[Version] = field(default_factory=list)
    is_deleted: bool = False

    def version(self, name: str | None) -> Version:
        if name is None:
            return self.versions[-1]
        for version in self.versions:
            if version.name == name:
                return version
        raise Refusal(404, "KeyNotFound", "", f"A key with version {name} was not found in this key vault.")


class Credential:
    """Gives the token it is set to, and counts how often it was asked."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.asked = 0

    def get_token(self, *_scopes, **_options) -> AccessToken:
        self.asked += 1
        return AccessToken(self.token, int(time.time()) + 3600)

    def close(self) -> None:
        pass


class _Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address) -> None:
        """Say nothing of a client that hangs up, or that does not trust the certificate."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class AzureDouble:
    """``faults`` are answers (status, error code, inner code, message) used up one a call; ``requests`` are the calls with a token."""

    def __init__(self, folder: Path) -> None:
        self.keys: dict[str, Key] = {}
        self.faults: list[tuple[int, str, str, str] | str] = []
        self.always: tuple[int, str, str, str] | str | None = None
        self.requests: list[str] = []
        self.revoked: set[str] = set()
        self.done = threading.Event()
        self.ca = folder / "ca.pem"
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = False
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(_certificate(self.ca, folder / "server.pem"))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self._server.server_port
        self.url = f"https://localhost:{self.port}"

    def add_version(self, name: str) -> str:
        key = self.keys.setdefault(name, Key())
        version = Version(f"{len(key.versions) + 1:032x}", rsa.generate_private_key(65537, 2048), 1_700_000_000 + len(key.versions))
        key.versions.append(version)
        return version.name

    def result(self, path: str, token: str, body: dict[str, str]) -> dict[str, object]:
        """Return what a call gives.

        Raises:
            Refusal: the answer that is no success.
        """
        match = PATH.fullmatch(path)
        if match is None:
            raise Refusal(404, "NotFound")
        name, version_name, call = match.groups()
        if {"versions": "list", None: "get"}.get(call, call) not in RIGHTS[token]:
            raise Refusal(403, "Forbidden", "ForbiddenByPolicy", f"The user does not have keys {call} permission on this key vault.")
        key = self.keys.get(name)
        if key is None:
            raise Refusal(404, "KeyNotFound", "", f"A key with (name/id) {name} was not found in this key vault.")
        if key.is_deleted:
            text = f"Key {name} is currently in a deleted but recoverable state, and its name cannot be reused."
            raise Refusal(404, "KeyNotFound", "ObjectIsDeletedButRecoverable", text)
        if call == "versions":
            return {"value": [self._properties(name, version) for version in key.versions], "nextLink": None}
        version = key.version(version_name)
        if call is None:
            numbers = version.key.public_key().public_numbers()
            jwk = {"kid": f"{self.url}/keys/{name}/{version.name}", "kty": "RSA", "key_ops": ["wrapKey", "unwrapKey"]}
            jwk |= {"n": _encoded(numbers.n.to_bytes(256)), "e": _encoded(numbers.e.to_bytes(3))}
            return {"key": jwk, **self._properties(name, version)}
        return {"kid": f"{self.url}/keys/{name}/{version.name}", "value": _encoded(version.used(call, body))}

    def _properties(self, name: str, version: Version) -> dict[str, object]:
        attributes = {"enabled": version.enabled, "created": version.created, "updated": version.created}
        return {"kid": f"{self.url}/keys/{name}/{version.name}", "attributes": attributes}

    @contextmanager
    def serving(self) -> Iterator[AzureDouble]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self.done.set()
            self._server.shutdown()
            thread.join()
            self._server.server_close()


class _Tunnel(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        with socket.create_connection(("127.0.0.1", self.server.target)) as double:
            self.connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            ends = {self.connection: double, double: self.connection}
            while True:
                for ready in select.select(list(ends), [], [], 30)[0] or [None]:
                    data = ready.recv(65536) if ready else b""
                    if not data:
                        return
                    ends[ready].sendall(data)


@contextmanager
def vault_proxy(double: AzureDouble) -> Iterator[int]:
    """Serve an HTTP proxy that leads every host to the double, so that a client may call it by a name of Azure's; yield its port."""
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Tunnel)
    server.target = double.port
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def key_client(url: str, ca: str, credential: Credential, timeout: float = 5) -> KeyClient:
    """Return an official client that trusts the double, whose name is not one of Azure's."""
    options = {"retry_total": 0, "connection_timeout": timeout, "read_timeout": timeout}
    return KeyClient(url, credential, verify_challenge_resource=False, connection_verify=ca, **options)


class DoubleAzureKms(AzureKms):
    """Properties: ``kms.double.url``, ``kms.double.ca``, ``kms.double.token``."""

    def __init__(self, properties) -> None:
        client = key_client(properties["kms.double.url"], properties["kms.double.ca"], Credential(properties["kms.double.token"]))
        super().__init__(properties, client=client)

    def __del__(self) -> None:
        self._client.close()


def _certificate(ca: Path, chain: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.DNSName(HOST)])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    builder = builder.not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
    builder = builder.add_extension(names, critical=False).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    ca.write_bytes(pem)
    chain.write_bytes(key.private_bytes(*form) + pem)
    return chain


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _handler(double: AzureDouble) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - a class, counted as one function
    class Handler(BaseHTTPRequestHandler):
        timeout = 5

        def do_POST(self):
            self._serve(json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}"))

        def do_GET(self):
            self._serve({})

        def _serve(self, body):
            self.close_connection = True
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if token not in RIGHTS or token in double.revoked:
                challenge = f'Bearer authorization="{double.url}/tenant", resource="https://vault.azure.net"'
                self._answer(401, {"error": {"code": "Unauthorized", "message": "no token"}}, {"WWW-Authenticate": challenge})
                return
            path = urlsplit(self.path).path
            double.requests.append(path)
            fault = double.faults.pop(0) if double.faults else double.always
            if fault == "silence":
                double.done.wait(60)
            elif fault == "garbage":
                self._answer(200, {"hello": "world"})
            elif fault != "drop":
                try:
                    if fault is not None:
                        raise Refusal(*fault)  # noqa: TRY301 - as the service would
                    self._answer(200, double.result(path, token, body))
                except Refusal as e:
                    self._answer(*e.answer)

        def _answer(self, status, content, headers=None):
            body = json.dumps(content).encode()
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Type": "application/json", "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler
