"""A double of Google Cloud KMS over gRPC: Encrypt and Decrypt with versions, states and two roles, as the API's documentation says.

``DoubleGcpKms`` is ``GcpKms`` with an official client on a channel to it, with a token for each call.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import google.auth.transport.grpc
import grpc
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.auth.credentials import Credentials
from google.cloud import kms_v1
from google.cloud.kms_v1.services.key_management_service.transports import KeyManagementServiceGrpcTransport
from google.cloud.kms_v1.types import DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse

from icelock.kms.gcp import GcpKms

RIGHTS = {"writer": {"encrypt", "decrypt"}, "reader": {"decrypt"}}
KEY_RING = "projects/p/locations/global/keyRings/ring/cryptoKeys/"


@dataclass
class Key:
    """Keys of the versions, by number from 1; the last one is primary."""

    versions: list[bytes] = field(default_factory=list)
    disabled: set[int] = field(default_factory=set)


class Token(Credentials):
    """A token that is renewed when it has run out: ``renew`` gives the next one, or fails."""

    def __init__(self, token: str, renew=None) -> None:
        super().__init__()
        self.token = token
        self._renew = renew

    def refresh(self, _request) -> None:
        self.token = self._renew()
        self.expiry = None


class _Refusal(Exception):  # noqa: N818 - an answer, not an error
    def __init__(self, status: grpc.StatusCode) -> None:
        super().__init__(status.name)
        self.status = status


class GcpDouble:
    """``faults`` are statuses (or "silence") used up one a call; ``calls`` counts all."""

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {}
        self.faults: list[Any] = []
        self.always: Any = None
        self.calls = 0
        self._done = threading.Event()
        self._pool = ThreadPoolExecutor(8)
        self._server = grpc.server(self._pool)
        methods = {
            "Encrypt": self._method(self._encrypt, "encrypt", EncryptRequest, EncryptResponse),
            "Decrypt": self._method(self._decrypt, "decrypt", DecryptRequest, DecryptResponse),
        }
        service = "google.cloud.kms.v1.KeyManagementService"
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        self.port = self._server.add_secure_port("127.0.0.1:0", grpc.local_server_credentials())

    def add_version(self, name: str) -> None:
        self.keys.setdefault(KEY_RING + name, Key()).versions.append(os.urandom(32))

    @contextmanager
    def serving(self) -> Iterator[GcpDouble]:
        self._server.start()
        try:
            yield self
        finally:
            self._done.set()
            self._server.stop(None).wait()
            self._pool.shutdown()

    def _method(self, serve, right, request_type, response_type):
        def method(request, context):
            self.calls += 1
            fault = self.faults.pop(0) if self.faults else self.always
            if fault == "silence":
                self._done.wait(60)
            try:
                _admit(fault, dict(context.invocation_metadata()).get("authorization", "").removeprefix("Bearer "), right)
                return serve(request)
            except _Refusal as e:
                context.abort(e.status, "s3cr3t words of the service")

        return grpc.unary_unary_rpc_method_handler(
            method, request_deserializer=request_type.deserialize, response_serializer=response_type.serialize
        )

    def _key(self, name: str) -> Key:
        key = self.keys.get(name)
        if key is None:
            raise _Refusal(grpc.StatusCode.NOT_FOUND)
        return key

    def _encrypt(self, request: EncryptRequest) -> EncryptResponse:
        key = self._key(request.name)
        version = len(key.versions)
        if version in key.disabled:
            raise _Refusal(grpc.StatusCode.FAILED_PRECONDITION)
        nonce = os.urandom(12)
        sealed = AESGCM(key.versions[-1]).encrypt(nonce, request.plaintext, None)
        return EncryptResponse(name=f"{request.name}/cryptoKeyVersions/{version}", ciphertext=bytes([version]) + nonce + sealed)

    def _decrypt(self, request: DecryptRequest) -> DecryptResponse:
        key, blob = self._key(request.name), request.ciphertext
        version = blob[0] if blob else 0
        if not 1 <= version <= len(key.versions):
            raise _Refusal(grpc.StatusCode.INVALID_ARGUMENT)
        if version in key.disabled:
            raise _Refusal(grpc.StatusCode.FAILED_PRECONDITION)
        try:
            return DecryptResponse(plaintext=AESGCM(key.versions[version - 1]).decrypt(blob[1:13], blob[13:], None))
        except (InvalidTag, ValueError):
            raise _Refusal(grpc.StatusCode.INVALID_ARGUMENT) from None


def _admit(fault: object, token: str, right: str) -> None:
    if isinstance(fault, grpc.StatusCode):
        raise _Refusal(fault)
    if token not in RIGHTS:
        raise _Refusal(grpc.StatusCode.UNAUTHENTICATED)
    if right not in RIGHTS[token]:
        raise _Refusal(grpc.StatusCode.PERMISSION_DENIED)


def gcp_client(port: int, credentials: Credentials) -> tuple[kms_v1.KeyManagementServiceClient, grpc.Channel]:
    """Return an official client and its channel, which is to be closed."""
    plugin = google.auth.transport.grpc.AuthMetadataPlugin(credentials, None)
    channel_credentials = grpc.composite_channel_credentials(grpc.local_channel_credentials(), grpc.metadata_call_credentials(plugin))
    channel = grpc.secure_channel(f"127.0.0.1:{port}", channel_credentials)
    return kms_v1.KeyManagementServiceClient(transport=KeyManagementServiceGrpcTransport(channel=channel)), channel


class DoubleGcpKms(GcpKms):
    """Properties: ``kms.double.port``, ``kms.double.token``."""

    def __init__(self, properties) -> None:
        client, self._channel = gcp_client(int(properties["kms.double.port"]), Token(properties["kms.double.token"]))
        super().__init__(properties, client=client)

    def __del__(self) -> None:
        self._channel.close()
