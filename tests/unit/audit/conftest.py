from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io import FileIO

from icelock.audit.file_check import Checked, CheckFiles, FileTask, by_lanes, check_files
from icelock.audit.options import AuditOptions, Progress
from icelock.audit.processes import OtherProcess
from icelock.audit.report import TableReport
from icelock.audit.table import Subject, audit_table
from icelock.catalog.trust.kept import Kept
from icelock.io.storage import open_storage
from icelock.kms.memory import MemoryKms
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.unit.audit.surgery import MASTER, Patient, path_of


@dataclass(frozen=True)
class Ward:
    """One table, as it was made, and the folder that is put back for each fault."""

    lake: TestLake
    metadata_file: Path
    pristine: Path

    def put_back(self) -> Patient:
        shutil.rmtree(self.lake.folder)
        shutil.copytree(self.pristine, self.lake.folder)
        return Patient(self.metadata_file)


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Ward:
    """A table of one snapshot, which needs three data files and a deletion vector; its older snapshot is cut out of the metadata."""
    lake = TestLake(tmp_path_factory.mktemp("ward") / "lake")
    lake.folder.mkdir()
    catalog = lake.catalog()
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", people().schema, properties={**KEYED, "write.delete.mode": "merge-on-read"})
    with table.update_spec() as spec:
        spec.add_identity("city")
    table.append(people(0, 30))
    table.delete("id = 5")
    table = table.refresh()
    metadata_file = path_of(table.metadata_location)
    metadata: dict[str, Any] = json.loads(metadata_file.read_text(encoding="utf-8"))
    old, new = metadata["snapshots"]
    path_of(old["manifest-list"]).unlink()
    metadata["snapshots"] = [new]
    metadata["encryption-keys"] = [key for key in metadata["encryption-keys"] if key["key-id"] != old["key-id"]]
    metadata_file.write_text(json.dumps(metadata), encoding="utf-8")
    pristine = lake.folder.parent / "pristine"
    shutil.copytree(lake.folder, pristine)
    catalog.close()
    return Ward(lake, metadata_file, pristine)


@pytest.fixture
def patient(ward: Ward) -> Patient:
    return ward.put_back()


class Elsewhere:
    """``CheckFiles`` that has another process open every file, begun for the first."""

    def __init__(self) -> None:
        self.process: OtherProcess | None = None

    def __call__(self, io: FileIO, tasks: Iterable[FileTask], *, threads: int) -> Iterator[Checked]:
        self.process = self.process or OtherProcess(threads)
        yield from by_lanes(io, ([task] for task in tasks), self.process.lanes, let_go=self.end)

    def end(self) -> None:
        if self.process is not None:
            self.process.end()
            self.process = None


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[Elsewhere]:
    """One process for all tests: they leave it as it is."""
    checks = Elsewhere()
    yield checks
    checks.end()


@pytest.fixture
def look_both_ways(elsewhere: Elsewhere) -> Callable[..., TableReport]:
    """``look``, here and in another process: the reports are the same, but for how long it took."""

    def look_twice(file: Path, *depth: str) -> TableReport:
        now_ms = AuditOptions.of("metadata", snapshots="all", threads=1, most=1).now_ms
        here, there = (replace(look(file, *depth, now_ms=now_ms, check=check), seconds=0) for check in (check_files, elsewhere))
        assert here.to_json() == there.to_json()
        assert elsewhere.process is None or all(lane.works is not False for lane in elsewhere.process.lanes), "files were opened here"
        return there

    return look_twice


def look(  # noqa: PLR0913 - keywords
    file: Path,
    *depth: str,
    kept: dict[str, Any] | None = None,
    kms: Any = None,
    now_ms: int | None = None,
    check: CheckFiles = check_files,
    progress: Progress | None = None,
) -> TableReport:
    """Audit the table of a metadata file without a catalog."""
    asked = AuditOptions.of(depth or "metadata", snapshots="all", threads=2, most=10)
    if now_ms is not None:
        asked = replace(asked, now_ms=now_ms)
    location = str(file)
    subject = Subject(
        name="db.t",
        kept=Kept(location=location, io=open_storage({}, location), **(kept or {})),
        kms=lambda: kms or MemoryKms({"kms.memory.keys.keyA": MASTER.hex()}),
        check_files=check,
    )
    return audit_table(subject, asked, progress)
