"""An S3 that counts its requests: moto behind a server on 127.0.0.1."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

_REGION: Final = "eu-west-1"


class Counting:
    """Moto as a WSGI application that counts requests of data files by method, and answers each after ``delay`` seconds."""

    def __init__(self) -> None:
        self._inner = DomainDispatcherApplication(create_backend_app)
        self.data: Counter[str] = Counter()
        self.others = 0
        self.delay = 0.0

    def __call__(self, environment: dict[str, Any], start: Any) -> Any:
        if ".parquet" in environment["PATH_INFO"] + environment["QUERY_STRING"]:
            self.data[environment["REQUEST_METHOD"]] += 1
        else:
            self.others += 1
        time.sleep(self.delay)
        return self._inner(environment, start)

    def clear(self) -> None:
        self.data.clear()
        self.others = 0


@dataclass(frozen=True, kw_only=True)
class Storage:
    """``properties`` are those of a catalog, ``hadoop`` the settings of Hadoop's client (S3A), ``client`` is boto3's."""

    counting: Counting
    bucket: str
    properties: dict[str, str]
    hadoop: dict[str, str]
    client: Any


@contextmanager
def s3_storage(bucket: str) -> Iterator[Storage]:
    """Serve an S3 with a bucket. Hadoop keeps its client of a bucket in the JVM: each server wants a name of its own."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    counting = Counting()
    server = make_server("127.0.0.1", 0, counting, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with patch.dict(os.environ, AWS_EC2_METADATA_DISABLED="true"):
        try:
            yield _storage(counting, f"http://127.0.0.1:{server.server_port}", bucket)
        finally:
            server.shutdown()
            server.server_close()


def _storage(counting: Counting, endpoint: str, bucket: str) -> Storage:
    session = boto3.Session(aws_access_key_id="any", aws_secret_access_key="any", region_name=_REGION)
    client = session.client("s3", endpoint_url=endpoint)
    client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": _REGION})
    return Storage(
        counting=counting,
        bucket=bucket,
        properties={"s3.endpoint": endpoint, "s3.access-key-id": "any", "s3.secret-access-key": "any", "s3.region": _REGION},
        hadoop={
            "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "fs.s3a.endpoint": endpoint,
            "fs.s3a.endpoint.region": _REGION,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": "any",
            "fs.s3a.secret.key": "any",
        },
        client=client,
    )
