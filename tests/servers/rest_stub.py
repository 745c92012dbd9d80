"""A small REST catalog server in Python, for what a real one cannot be made to do: fail at a chosen point, lie, lend credentials.

Tables are JSON objects in memory, and each version is a file below ``warehouse``. Subclasses change what the server makes of a request
(``servers_that_lose_keys``). Nothing of icelock or PyIceberg is used.

    stub.fail("POST", "/tables/t", when="after", how=500)      the next such request; ``how`` is a status, "drop", "hang", "garbage",
                                                               bytes of an answer, or a function of the connection's file
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

HANG_SECONDS = 1.5
# Of a table's schema, spec, order and place.
_FORM = ("upgrade-format", "add-schema", "set-current", "add-spec", "set-default", "add-sort-order", "set-location")


class RefusalError(Exception):
    """An answer of failure."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class RestStub:
    """``with RestStub(folder) as stub:``; ``uri`` is its address, ``requests`` are all that came, as "METHOD path"."""

    def __init__(self, warehouse: Path) -> None:
        self.warehouse = warehouse
        self.defaults: dict[str, Any] = {}
        self.overrides: dict[str, Any] = {}
        self.table_config: dict[str, Any] = {}
        self.credentials: list[dict[str, Any]] = []
        self.tables: dict[tuple[str, str], dict[str, Any]] = {}
        self.staged: dict[tuple[str, str], dict[str, Any]] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.requests: list[str] = []
        self.bodies: list[tuple[str, Any]] = []
        self.headers: list[tuple[str, dict[str, str]]] = []
        self.uri = ""
        self.connections: list[socket.socket] = []
        self._plan: list[tuple[str, str, str, Any]] = []
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        stub = self

        class Handler(_Handler):
            server_stub = stub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for opened in self.connections:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        self.connections.clear()

    def fail(self, method: str, path: str, *, when: str = "after", how: Any = 500, times: int = 1) -> None:
        """Fail the next requests whose path has ``path`` in it, before or after they are dealt with."""
        self._plan += [(method, path, when, how)] * times

    def due(self, method: str, path: str) -> tuple[str, Any]:
        for index, (wanted, part, when, how) in enumerate(self._plan):
            if wanted == method and part in path:
                del self._plan[index]
                return when, how
        return "", None

    def handle(self, method: str, path: str, body: Any) -> tuple[int, Any]:  # noqa: C901, PLR0911 - one line a route
        """Deal with a request; returns status and body of the answer."""
        parts = [unquote(part) for part in path.strip("/").split("/")][1:]
        with self._lock:
            match method, parts:
                case "GET", ["config"]:
                    return 200, {"defaults": self.defaults, "overrides": self.overrides}
                case "POST", ["oauth", "tokens"]:
                    return 200, {"access_token": "from-oauth", "token_type": "bearer", "expires_in": 3600}
                case "POST", ["namespaces"]:
                    self.namespaces[".".join(body["namespace"])] = body.get("properties", {})
                    return 200, {"namespace": body["namespace"], "properties": {}}
                case "GET" | "HEAD", ["namespaces", name]:
                    if name not in self.namespaces:
                        raise RefusalError(404, "NoSuchNamespaceException", f"no namespace {name}")
                    return 200, {"namespace": name.split("."), "properties": self.namespaces[name]}
                case "GET", ["namespaces", space, "tables"]:
                    return 200, {"identifiers": [{"namespace": [n], "name": t} for n, t in self.tables if n == space]}
                case "POST", ["namespaces", space, "tables"]:
                    return 200, self.create(space, body)
                case "POST", ["namespaces", space, "register"]:
                    metadata = json.loads(Path(body["metadata-location"].removeprefix("file://")).read_text())
                    return 200, self.keep(space, body["name"], metadata, body["metadata-location"])
                case "GET" | "HEAD", ["namespaces", space, "tables", name]:
                    return 200, self.loaded(self.found(space, name))
                case "GET", ["namespaces", space, "tables", name, "credentials"]:
                    self.found(space, name)
                    return 200, {"storage-credentials": self.credentials}
                case "POST", ["namespaces", space, "tables", name]:
                    return 200, self.commit(space, name, body)
                case "DELETE", ["namespaces", space, "tables", name]:
                    self.found(space, name)
                    del self.tables[space, name]
                    return 204, None
        raise RefusalError(404, "NotFound", f"{method} {path} is unknown here")

    def found(self, space: str, name: str) -> dict[str, Any]:
        if (space, name) not in self.tables:
            raise RefusalError(404, "NoSuchTableException", f"no table {space}.{name}")
        return self.tables[space, name]

    def loaded(self, table: dict[str, Any]) -> dict[str, Any]:
        return {**table, "config": self.table_config, "storage-credentials": self.credentials}

    def create(self, space: str, body: dict[str, Any]) -> dict[str, Any]:
        if (space, body["name"]) in self.tables:
            raise RefusalError(409, "AlreadyExistsException", f"table {space}.{body['name']} is there")
        properties = dict(body.get("properties", {}))
        version = int(properties.pop("format-version", "2"))
        schema, spec, order = body["schema"], body.get("partition-spec"), body.get("write-order")
        ids = [field["id"] for field in schema["fields"]]
        metadata = {
            "format-version": version,
            "table-uuid": str(uuid.uuid4()),
            "location": body.get("location") or f"file://{self.warehouse}/{space}/{body['name']}",
            "last-sequence-number": 0,
            "last-updated-ms": now(),
            "last-column-id": max(ids, default=0),
            "current-schema-id": 0,
            "schemas": [{**schema, "schema-id": 0}],
            "default-spec-id": 0,
            "partition-specs": [spec or {"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": (order or {"order-id": 0})["order-id"],
            "sort-orders": [order or {"order-id": 0, "fields": []}],
            "properties": properties,
            "current-snapshot-id": None,
            "snapshots": [],
            "refs": {},
            **({"next-row-id": 0} if version == 3 else {}),
        }
        if body.get("stage-create"):
            self.staged[space, body["name"]] = metadata
            return {"metadata": metadata, "config": self.table_config, "storage-credentials": self.credentials}
        return self.keep(space, body["name"], metadata)

    def commit(self, space: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        if {"type": "assert-create"} in body["requirements"]:
            return self.commit_staged(space, name, body)
        table = self.found(space, name)
        metadata = json.loads(json.dumps(table["metadata"]))
        for requirement in body["requirements"]:
            self.check(metadata, requirement)
        for update in body["updates"]:
            self.apply(metadata, update)
        metadata["last-updated-ms"] = max(now(), metadata["last-updated-ms"] + 1)
        log = {"metadata-file": table["metadata-location"], "timestamp-ms": table["metadata"]["last-updated-ms"]}
        metadata["metadata-log"] = [*metadata.get("metadata-log", []), log]
        return self.keep(space, name, metadata)

    def commit_staged(self, space: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """Make a table of what was staged last; updates that say again what that has are left out."""
        if (space, name) in self.tables:
            raise RefusalError(409, "AlreadyExistsException", f"table {space}.{name} is there")
        metadata = json.loads(json.dumps(self.staged.pop((space, name))))
        for update in body["updates"]:
            if update["action"] == "assign-uuid":
                metadata["table-uuid"] = update["uuid"]
            elif not update["action"].startswith(_FORM):
                self.apply(metadata, update)
        return self.keep(space, name, metadata)

    def check(self, metadata: dict[str, Any], requirement: dict[str, Any]) -> None:
        match requirement["type"]:
            case "assert-table-uuid":
                held = requirement["uuid"] == metadata["table-uuid"]
            case "assert-ref-snapshot-id":
                ref = metadata["refs"].get(requirement["ref"])
                held = (ref or {}).get("snapshot-id") == requirement.get("snapshot-id")
            case _:
                held = True
        if not held:
            raise RefusalError(409, "CommitFailedException", f"requirement failed: {requirement}")

    def apply(self, metadata: dict[str, Any], update: dict[str, Any]) -> None:
        match update["action"]:
            case "set-properties":
                metadata["properties"].update(update["updates"])
            case "remove-properties":
                for key in update["removals"]:
                    metadata["properties"].pop(key, None)
            case "add-encryption-key":
                metadata.setdefault("encryption-keys", []).append(update["encryption-key"])
            case "remove-encryption-key":
                metadata["encryption-keys"] = [key for key in metadata["encryption-keys"] if key["key-id"] != update["key-id"]]
            case "add-snapshot":
                snapshot = update["snapshot"]
                metadata["snapshots"].append(snapshot)
                metadata["last-sequence-number"] = snapshot["sequence-number"]
                metadata["next-row-id"] = metadata.get("next-row-id", 0) + snapshot.get("added-rows", 0)
            case "set-snapshot-ref":
                ref = {"snapshot-id": update["snapshot-id"], "type": update["type"]}
                metadata["refs"][update["ref-name"]] = ref
                if update["ref-name"] == "main":
                    metadata["current-snapshot-id"] = update["snapshot-id"]
            case other:
                raise RefusalError(400, "BadRequestException", f"no action {other}")

    def keep(self, space: str, name: str, metadata: dict[str, Any], location: str | None = None) -> dict[str, Any]:
        """Make this the table's current version, and write its file unless it is there."""
        if location is None:
            number = len(metadata.get("metadata-log", []))
            location = f"{metadata['location']}/metadata/{number:05d}-{uuid.uuid4()}.metadata.json"
            file = Path(location.removeprefix("file://"))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(metadata))
        self.tables[space, name] = {"metadata-location": location, "metadata": metadata}
        return self.loaded(self.tables[space, name])


class _Handler(BaseHTTPRequestHandler):
    server_stub: RestStub
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server_stub.connections.append(self.connection)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        stub, path = self.server_stub, urlsplit(self.path).path
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        body = json.loads(raw) if raw[:1] == b"{" else raw.decode()
        stub.requests.append(f"{self.command} {path}")
        stub.headers.append((f"{self.command} {path}", dict(self.headers)))
        if body:
            stub.bodies.append((f"{self.command} {path}", body))
        when, how = stub.due(self.command, path)
        if when == "before" and self._fails(how):
            return
        try:
            status, answer = stub.handle(self.command, path, body)
        except RefusalError as e:
            status, answer = e.status, {"error": {"message": str(e), "type": e.kind, "code": e.status}}
        if when == "after" and self._fails(how):
            return
        self._send(status, answer)

    do_GET = do_HEAD = do_POST = do_DELETE = _serve  # noqa: N815

    def _fails(self, how: Any) -> bool:
        if how == "drop":
            self.close_connection = True
            self.connection.close()
            return True
        if isinstance(how, bytes):
            self.wfile.write(how)
            self.close_connection = True
            return True
        if callable(how):
            with contextlib.suppress(OSError):
                how(self.wfile)
            self.close_connection = True
            return True
        if how == "hang":
            time.sleep(HANG_SECONDS)
            self.close_connection = True
            return True
        if how == "garbage":
            self._send(200, {"metadata": "none"})
            return True
        self._send(int(how), {"error": {"message": "made to fail", "type": "TestFailure", "code": int(how)}})
        return True

    def _send(self, status: int, answer: Any) -> None:
        data = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def now() -> int:
    return int(time.time() * 1000)
