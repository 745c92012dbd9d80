"""The progress file by itself: what is found again, what a torn end costs, and that nothing else passes."""

from __future__ import annotations

import base64
import json
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.typedef import Record

from icelock.errors import FormatError, IcelockError, IntegrityError, KmsError, PolicyError
from icelock.metadata.manifest import DataFile
from icelock.plan.task import ScanTask
from icelock.table.encryption import TableEncryption
from icelock.table.maintenance.conversion.kept_copies import KeptCopies
from icelock.table.maintenance.conversion.progress_file import progress_file
from tests.helpers.counting_kms import KEYS, Calls
from tests.helpers.turns import in_turn

ABOUT = {"table-uuid": "0b7", "location": "s3://lake/db/t", "key-id": "keyA", "history": "drop"}
RECORDS = [b"record number 0", b"", b"\x00\n\xff" * 40]


class StoppedError(Exception):
    """What ends a call before it is done."""


@pytest.fixture
def encryption(tmp_path: Path) -> TableEncryption:
    return TableEncryption.from_properties(Calls(tmp_path).properties(), owner="the test")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "progress"


def interrupted(path: Path, encryption: TableEncryption, *records: bytes, about: dict[str, str] = ABOUT) -> list[bytes]:
    """Add records, and end before all is done; return what was found before."""
    with suppress(StoppedError), progress_file(path, about, encryption) as file:
        found = list(file.found)
        for record in records:
            file.add(record)
        raise StoppedError
    return found


def found_in(path: Path, encryption: TableEncryption, about: dict[str, str] = ABOUT) -> list[bytes]:
    return interrupted(path, encryption, about=about)


def test_records_are_found_again_and_added_to(path: Path, encryption: TableEncryption) -> None:
    assert interrupted(path, encryption, *RECORDS) == []
    first = path.read_bytes()
    assert interrupted(path, encryption, b"fourth") == RECORDS
    second = path.read_bytes()
    assert found_in(path, encryption) == [*RECORDS, b"fourth"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not {*first.splitlines()} & {*second.splitlines()}, "each call has a key of its own, and seals all under it"
    assert (b"record" in base64.b64decode(first.splitlines()[1]), first.count(b"\n")) == (False, 4)
    assert [one.name for one in path.parent.iterdir() if one.name.startswith((".progress", "progress"))] == ["progress"]


def test_it_goes_when_all_is_done_or_there_was_nothing(path: Path, encryption: TableEncryption) -> None:
    found_in(path, encryption)
    assert not path.exists()
    path.touch()  # as mktemp makes one
    interrupted(path, encryption, b"one")
    with progress_file(path, ABOUT, encryption) as file:
        file.add(b"two")
    assert not [one for one in path.parent.iterdir() if "progress" in one.name]


def test_a_torn_end_is_left_out(path: Path, encryption: TableEncryption) -> None:
    interrupted(path, encryption, *RECORDS)
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rindex(b"\n") + 1
    for cut in (last, last + 1, last + 30, len(whole) - 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert found_in(path, encryption) == RECORDS[:2], cut
    path.write_bytes(whole[: last + 30] + bytes(4096))  # what a file system may leave after a loss of power
    assert found_in(path, encryption) == RECORDS[:2]
    assert interrupted(path, encryption, b"again") == RECORDS[:2]
    assert found_in(path, encryption) == [*RECORDS[:2], b"again"]


def test_cut_at_any_byte_it_has_less_and_nothing_else(path: Path, encryption: TableEncryption) -> None:
    """A file that was copied in part, or that a disk lost the end of: whole records, or no progress file."""
    interrupted(path, encryption, *RECORDS)
    whole = path.read_bytes()
    ends = [number + 1 for number, byte in enumerate(whole) if byte == ord("\n")]
    assert len(ends) == 1 + len(RECORDS)
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        if 0 < cut < ends[0] - 1:
            with pytest.raises(FormatError, match="is no progress file"):
                found_in(path, encryption)
            assert path.read_bytes() == whole[:cut], "it may be something else"
        else:
            assert found_in(path, encryption) == RECORDS[: sum(end <= cut for end in ends[1:])], cut


def test_no_changed_bit_passes(path: Path, encryption: TableEncryption) -> None:
    """Also not in the first line; only the end of the last line may be gone."""
    interrupted(path, encryption, *RECORDS)
    whole = path.read_bytes()
    for place in in_turn("progress file", len(whole), 7, always=(len(whole) - 1,)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 7]) + whole[place + 1 :])
        if place == len(whole) - 1:  # a line without its end
            assert found_in(path, encryption) == RECORDS[:2]
            continue
        with pytest.raises(IcelockError), progress_file(path, ABOUT, encryption):
            pass
        assert path.exists()


def lines_of(path: Path, encryption: TableEncryption, *records: bytes) -> list[bytes]:
    interrupted(path, encryption, *records)
    lines = path.read_bytes().splitlines(keepends=True)
    path.unlink()
    return lines


@pytest.mark.parametrize("change", ["swapped", "twice", "gone", "of another file", "without its base64"])
def test_records_have_a_place(path: Path, encryption: TableEncryption, change: str) -> None:
    head, one, two, three = lines_of(path, encryption, *RECORDS)
    other = lines_of(path, encryption, *RECORDS)
    made = {
        "swapped": [head, two, one, three],
        "twice": [head, one, one, two, three],
        "gone": [head, one, three],
        "of another file": [head, one, other[2], three],
        "without its base64": [head, one, b"%%%\n", three],
    }[change]
    path.write_bytes(b"".join(made))
    with pytest.raises(IntegrityError, match=r"record \d of \d does not authenticate: .*remove it"), progress_file(path, ABOUT, encryption):
        pass
    assert path.read_bytes() == b"".join(made)


@pytest.mark.parametrize("name", ["table-uuid", "location", "key-id", "history", "data-key-length"])
def test_a_file_is_about_one_thing(path: Path, encryption: TableEncryption, name: str) -> None:
    """Also one whose first line was made to say what is asked for."""
    interrupted(path, encryption, *RECORDS)
    before, asked = path.read_bytes(), {**ABOUT, name: "keyB"}
    with pytest.raises(PolicyError, match=rf"{name} .* instead of 'keyB'"), progress_file(path, asked, encryption):
        pass
    assert path.read_bytes() == before
    head = json.loads(before.splitlines()[0])
    head["about"][name] = "keyB"
    path.write_bytes(json.dumps(head, sort_keys=True).encode() + before[before.index(b"\n") :])
    with pytest.raises((PolicyError, IntegrityError)), progress_file(path, asked, encryption):
        pass


@pytest.mark.parametrize(
    "content",
    [b"export TOKEN=1\n", b'{"icelock": "other", "version": 1}\n', b"[]\n", b'{"icelock": "progress", "version": 1}\n', b"\xff\n"],
)
def test_another_file_is_left_alone(path: Path, encryption: TableEncryption, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(FormatError, match="is no progress file"), progress_file(path, ABOUT, encryption):
        pass
    assert path.read_bytes() == content


@pytest.mark.parametrize("version", [0, 2, 1.5, "1"])
def test_one_of_another_version_is_left_alone(path: Path, encryption: TableEncryption, version: Any) -> None:
    interrupted(path, encryption, *RECORDS)
    head, _, rest = path.read_bytes().partition(b"\n")
    content = json.dumps({**json.loads(head), "version": version, "more": []}).encode() + b"\n" + rest
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"of version .*, and this icelock has version 1: go on with the icelock that wrote it, .*remove"):
        found_in(path, encryption)
    assert path.read_bytes() == content


def _other_forms(record: dict[str, Any]) -> dict[str, Any]:
    [[spec, entry]] = record["files"]
    less = {name: value for name, value in entry.items() if name != "record_count"}
    return {
        "a field of the record more": {**record, "by": "icelock 9"},
        "no name": {"files": record["files"]},
        "no files": {"of": record["of"]},
        "a list": [record],
        "a field of the entry less": {**record, "files": [[spec, less]]},
        "a field of the entry more": {**record, "files": [[spec, {**entry, "checksum": 5}]]},
        "another kind of value": {**record, "files": [[spec, {**entry, "partition": [{"geometry": "POINT"}]}]]},
        "an unknown format": {**record, "files": [[spec, {**entry, "file_format": "VORTEX"}]]},
        "three values": {**record, "files": [[spec, entry, 1]]},
    }


def test_records_of_another_version_are_not_used(path: Path, encryption: TableEncryption, caplog: pytest.LogCaptureFixture) -> None:
    """One with a name beside the known ones is; and they stay in the file, for the version that wrote them."""
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="s3://a.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(1),
        record_count=10,
        file_size_in_bytes=5,
    )
    file.spec_id = 0
    task = ScanTask(path="a", file_format="PARQUET", key_metadata=None, file_size=7, record_count=10, spec_id=0, partition=(1,))
    with suppress(StoppedError), progress_file(path, ABOUT, encryption) as opened:
        KeptCopies(opened).add(("a",), (1,), task, [file])
        raise StoppedError
    [written] = found_in(path, encryption)
    for what, form in {"none": json.loads(written), **_other_forms(json.loads(written))}.items():
        path.unlink(missing_ok=True)
        interrupted(path, encryption, json.dumps(form).encode())
        caplog.clear()
        with suppress(StoppedError), progress_file(path, ABOUT, encryption) as opened:
            used = KeptCopies(opened).of({("a",): task}, (1,))
            raise StoppedError
        known = what in {"none", "a field of the record more"}
        assert (len(used), "has 1 records that this version" in caplog.text) == (int(known), not known), what
        assert len(found_in(path, encryption)) == 1, what


def test_one_process_at_a_time(path: Path, encryption: TableEncryption) -> None:
    errors: list[BaseException] = []

    def second() -> None:
        try:
            with progress_file(path, ABOUT, encryption):
                pass
        except PolicyError as e:
            errors.append(e)

    with progress_file(path, ABOUT, encryption) as file:
        file.add(b"mine")
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        assert "used by another process" in str(errors[0])
        assert path.read_bytes().count(b"\n") == 2
    second()
    assert len(errors) == 1


def test_a_lock_that_another_process_removed_meanwhile_is_none(path: Path, encryption: TableEncryption, monkeypatch: Any) -> None:
    """Who opened the lock file just before it was removed would hold a lock that nobody else sees."""
    from icelock.table.maintenance.conversion import progress_file as module  # noqa: PLC0415

    take, taken = module.take_lock, list[Path]()

    def late(lock: Path, *, wait_seconds: float) -> int:
        descriptor = take(lock, wait_seconds=wait_seconds)
        if not taken:
            lock.unlink()
        taken.append(lock)
        return descriptor

    monkeypatch.setattr(module, "take_lock", late)
    interrupted(path, encryption, b"one")
    assert len(taken) == 2


def test_records_reach_the_disk_in_batches(path: Path, encryption: TableEncryption, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 at a time, or after five seconds, or when the call ends; each is written at once, so only a loss of power costs some."""
    from icelock.table.maintenance.conversion import progress_file as module  # noqa: PLC0415

    synced, now, sync = list[int](), [0.0], module.os.fsync
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with suppress(StoppedError), progress_file(path, ABOUT, encryption) as file:
        monkeypatch.setattr(module.os, "fsync", lambda descriptor: (synced.append(path.read_bytes().count(b"\n") - 1), sync(descriptor)))
        for number in range(130):
            file.add(b"%d" % number)
            assert path.read_bytes().count(b"\n") == number + 2
        assert synced == [64, 128]
        now[0] = 5.0
        file.add(b"late")
        assert synced == [64, 128, 131]
        raise StoppedError
    assert synced == [64, 128, 131, 131]


def test_where_it_may_lie(tmp_path: Path, encryption: TableEncryption) -> None:
    at = {**ABOUT, "location": f"file://{tmp_path}/warehouse/t"}
    cases: list[tuple[Any, Callable[[], None]]] = [
        ("s3://bucket/progress", lambda: None),
        (tmp_path / "warehouse" / "t" / "progress", lambda: None),
        (tmp_path / "link" / "progress", lambda: (tmp_path / "link").symlink_to(tmp_path / "warehouse" / "t")),
        (tmp_path / "nowhere" / "progress", lambda: None),
    ]
    (tmp_path / "warehouse" / "t").mkdir(parents=True)
    for place, prepare in cases:
        prepare()
        with (
            pytest.raises(PolicyError, match=r"disk of this machine|lies at the table|cannot be used"),
            progress_file(place, at, encryption),
        ):
            pass
    assert list((tmp_path / "warehouse" / "t").iterdir()) == []


def test_the_kms_decides(path: Path, tmp_path: Path, encryption: TableEncryption) -> None:
    interrupted(path, encryption, *RECORDS)
    before = path.read_bytes()
    with pytest.raises(KmsError, match="keyC"), progress_file(tmp_path / "new", {**ABOUT, "key-id": "keyC"}, encryption):
        pass
    denied = Calls(tmp_path)
    denied.deny("unwrap")
    again = TableEncryption.from_properties(denied.properties(), owner="the test")
    with pytest.raises(KmsError, match=r"progress file .*the right to unwrap"), progress_file(path, ABOUT, again):
        pass
    assert path.read_bytes() == before
    assert not any(key in before for key in KEYS.values())


def test_entries_come_back_as_they_were(path: Path, encryption: TableEncryption) -> None:
    """Partition values of each kind that PyIceberg has, bounds, and keys."""
    partition = [None, True, -5, 0.1, float("inf"), -0.0, "a/b", b"\x00\xff", Decimal("-1.230"), UUID(int=7)]
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="s3://lake/db/t/data/a.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=10,
        file_size_in_bytes=2**40,
        column_sizes={1: 4, 2: 5},
        lower_bounds={1: b"\x00\x01"},
        upper_bounds={},
        split_offsets=[4, 8],
        equality_ids=None,
        sort_order_id=0,
        key_metadata=b"\x01key",
    )
    file.spec_id = 3
    task = ScanTask(path="a", file_format="PARQUET", key_metadata=None, file_size=7, record_count=10, spec_id=3, partition=tuple(partition))
    other = replace(task, file_size=8)
    with suppress(StoppedError), progress_file(path, ABOUT, encryption) as opened:
        KeptCopies(opened).add(("a",), (1,), task, [file])
        KeptCopies(opened).add(("b",), (1,), task, [])
        raise StoppedError
    with progress_file(path, ABOUT, encryption) as opened:
        kept = KeptCopies(opened)
        assert kept.paths == {file.file_path}
        assert kept.of({("a",): other, ("c",): task}, (1,)) == {}
        assert kept.of({("a",): task}, (2,)) == {}
        found = kept.of({("a",): task, ("b",): task}, (1,))
    [again] = found.pop(("a",))
    assert found == {("b",): []}
    assert [repr(value) for value in again.partition._data] == [repr(value) for value in partition]
    assert again._data[:3] + again._data[4:] == file._data[:3] + file._data[4:]
    assert (again.spec_id, again.fresh, again.key_metadata) == (3, True, b"\x01key")


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "folder", "device"])
def test_what_is_no_file_is_not_read(path: Path, encryption: TableEncryption, make: Callable[[Path], None]) -> None:
    """A pipe that another user made has no end, nor has a device: the call would wait, or fill its memory."""
    make(path)
    with pytest.raises(PolicyError, match="not a file: name another place"), progress_file(path, ABOUT, encryption):
        pass
