"""Eight processes that commit to one table of Iceberg's REST server at once: with default settings all get through."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from counting_kms import Calls
from lake import KEYED, people
from rest_server import RestServer

import icelock

WRITERS, COMMITS = 8, 1
CHILD = """
import json, sys
sys.path[:0] = json.loads(sys.argv[3])
import icelock
from lake import people
table = icelock.load_catalog("test", **json.loads(sys.argv[1])).load_table("db.t")
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    table.append(people(number, 1))
"""


def test_eight_processes_all_get_through(tmp_path: Path) -> None:
    with RestServer() as server:
        properties = {"type": "rest", "uri": server.uri, **Calls(tmp_path).properties()}
        catalog = icelock.load_catalog("test", **properties)
        catalog.create_namespace("db")
        table = catalog.create_table("db.t", people().schema, properties=KEYED)
        command = [sys.executable, "-c", CHILD, json.dumps(properties), str(COMMITS), json.dumps(sys.path)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        writers = [subprocess.Popen(command, **pipes) for _ in range(WRITERS)]
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for writer in writers:
            _, errors = writer.communicate(timeout=300)
            assert writer.returncode == 0, errors[-2000:]
        table.refresh()
        assert len(table.metadata.snapshots) == WRITERS * COMMITS
        keys = {key.key_id: key for key in table.metadata.encryption_keys}
        assert all(snapshot.key_id in keys for snapshot in table.metadata.snapshots)
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted(list(range(COMMITS)) * WRITERS)
