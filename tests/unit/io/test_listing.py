"""Listing and deleting on each kind of FileIO: all files at any depth, by the names that metadata uses."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from icelock.errors import PolicyError
from icelock.io.listing import StoredFile, delete_files, list_files, written_ms
from icelock.io.locations import lies_below, place_of

NAMES = ("a.parquet", "data/x=1/b c.parquet", "data/x=%2F/ö.parquet", "metadata/v1.metadata.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(NAMES):
        path = tmp_path / "t" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (number + 1))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    (tmp_path / "t" / "empty").mkdir()
    (tmp_path / "t2").mkdir()
    (tmp_path / "t2" / "other").write_bytes(b"")
    return tmp_path / "t"


@pytest.mark.parametrize("io", [PyArrowFileIO(), FsspecFileIO({})], ids=["arrow", "fsspec"])
@pytest.mark.parametrize("prefix", ["", "file:", "file://"], ids=["path", "file:", "file://"])
def test_every_file_is_listed_by_the_locations_own_spelling(folder: Path, io: FileIO, prefix: str) -> None:
    root = f"{prefix}{folder}"
    found = sorted(list_files(io, root + "/"), key=lambda file: file.location)
    wanted = [
        StoredFile(location=f"{root}/{name}", size=number + 1, modified_ms=1_700_000_000_000 + number * 1000)
        for number, name in enumerate(NAMES)
    ]
    assert found == sorted(wanted, key=lambda file: file.location)


@pytest.mark.parametrize("io", [PyArrowFileIO(), FsspecFileIO({})], ids=["arrow", "fsspec"])
@pytest.mark.parametrize("prefix", ["", "file:", "file://"], ids=["path", "file:", "file://"])
def test_when_a_file_was_written(folder: Path, io: FileIO, prefix: str) -> None:
    assert [written_ms(io, f"{prefix}{folder}/{name}") for name in NAMES[:2]] == [1_700_000_000_000, 1_700_000_001_000]
    os.utime(folder / NAMES[0], (5, 5))
    assert written_ms(io, f"{prefix}{folder}/{NAMES[0]}") == 5_000, "as it is now, not as it was listed"


@pytest.mark.parametrize("io", [PyArrowFileIO(), FsspecFileIO({})], ids=["arrow", "fsspec"])
def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path, io: FileIO) -> None:
    assert list(list_files(io, str(tmp_path / "nothing"))) == []


@pytest.mark.parametrize("io", [PyArrowFileIO(), FsspecFileIO({})], ids=["arrow", "fsspec"])
def test_files_are_deleted_and_those_that_are_not_there_do_not_matter(folder: Path, io: FileIO) -> None:
    assert delete_files(io, [str(folder / NAMES[0]), str(folder / "never"), str(folder / NAMES[1])]) == []
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == set(NAMES[2:])


@pytest.mark.parametrize("io", [PyArrowFileIO(), FsspecFileIO({})], ids=["arrow", "fsspec"])
def test_links_to_folders_are_not_followed(folder: Path, io: FileIO) -> None:
    """Two links back to their own folder are 2^40 paths to each file; one to another folder would list another table's files."""
    for name, target in (("data/a", "."), ("data/b", "."), ("data/other", folder.parent / "t2")):
        (folder / name).symlink_to(target, target_is_directory=True)
    told: list[str] = []
    assert {file.location for file in list_files(io, str(folder), not_followed=told.append)} == {f"{folder}/{name}" for name in NAMES}
    assert sorted(told) == [f"{folder}/data/{name}" for name in ("a", "b", "other")]


def test_what_is_not_allowed_any_more_stays(folder: Path) -> None:
    """A folder became a link between the listing and the deletion."""
    victim = folder.parent / "t2" / "other"
    locations = [str(folder / NAMES[0]), f"{folder}/data/other"]
    (folder / "data").rename(folder / "gone")
    (folder / "data").symlink_to(victim.parent, target_is_directory=True)
    left = delete_files(PyArrowFileIO(), locations, allowed=lambda location: lies_below(location, str(folder)))
    assert left == [f"{folder}/data/other"]
    assert victim.exists()


def test_errors_of_the_listing_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty answer for a failed one would make files left over."""

    class Broken:
        def get_file_info(self, selector: object) -> None:
            raise TimeoutError(selector)

    io = PyArrowFileIO()
    monkeypatch.setattr(io, "fs_by_scheme", lambda *_: Broken())
    with pytest.raises(TimeoutError):
        list(list_files(io, "s3://somewhere/t"))


def test_errors_of_a_local_listing_are_raised(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(place: str) -> None:
        raise PermissionError(place)

    monkeypatch.setattr(os, "scandir", broken)
    with pytest.raises(PermissionError):
        list(list_files(PyArrowFileIO(), str(folder)))
    monkeypatch.undo()
    assert list(list_files(PyArrowFileIO(), str(folder / "not there"))) == []


class Bare(FileIO):
    """A FileIO that counts single deletes, and cannot list."""

    def __init__(self) -> None:
        super().__init__({})
        self.single: list[str] = []

    def new_input(self, location: str) -> None: ...  # type: ignore[override]

    def new_output(self, location: str) -> None: ...  # type: ignore[override]

    def delete(self, location: str) -> None:  # type: ignore[override]
        self.single.append(location)
        if location.endswith("7"):
            raise PermissionError(location)


class Able(Bare):
    """One that can do both in few calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[str]] = []

    def list_prefix(self, location: str) -> Iterable[StoredFile]:
        return [StoredFile(location=f"{location}/only", size=1, modified_ms=None)]

    def delete_files(self, locations: Iterable[str]) -> Iterable[str]:
        self.calls.append(list(locations))
        return ["f5"]


def test_a_file_io_that_cannot_list_is_refused() -> None:
    with pytest.raises(PolicyError, match="Bare cannot list"):
        list(list_files(Bare(), "s3://b/t"))


def test_a_thousand_deletes_are_one_call_where_the_file_io_can() -> None:
    """C-50."""
    io = Able()
    assert delete_files(io, (f"f{n}" for n in range(1000))) == ["f5"]
    assert [len(call) for call in io.calls] == [1000]
    assert io.single == []
    assert [file.location for file in list_files(io, "x://t")] == ["x://t/only"]


def test_deleting_goes_on_after_errors(caplog: pytest.LogCaptureFixture) -> None:
    io = Bare()
    with caplog.at_level("DEBUG", logger="icelock"):
        assert delete_files(io, [f"f{n}" for n in range(20)]) == ["f7", "f17"]
    assert sorted(io.single) == sorted(f"f{n}" for n in range(20))
    assert sorted(record.getMessage() for record in caplog.records) == ["could not delete f17: f17", "could not delete f7: f7"]


def test_one_call_for_many_files_may_fail_and_is_asked_for_allowed_ones_only() -> None:
    """A caller that cleans up after a failure keeps that failure; a folder that became a link is not followed by this way either."""
    io = Able()
    assert delete_files(io, ["f1", "f2"], allowed=lambda location: location == "f2") == ["f1", "f5"]
    assert io.calls == [["f2"]]
    io.delete_files = lambda _: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    assert delete_files(io, ["f1", "f2"]) == ["f1", "f2"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("file:///a//b", "file:/a/b"),
        ("s3://bucket/x/y", "s3a://bucket/x//y"),
        ("/a/./b", "/a/b"),
    ],
)
def test_spellings_of_one_place(one: str, other: str) -> None:
    assert place_of(one) == place_of(other)


@pytest.mark.parametrize(
    ("one", "other"), [("s3://b/x%20y", "s3://b/x y"), ("s3://b/x", "s3://c/x"), ("/a/b?c", "/a/b"), ("s3://b/x#1", "s3://b/x")]
)
def test_places_that_are_not_one(one: str, other: str) -> None:
    assert place_of(one) != place_of(other)
