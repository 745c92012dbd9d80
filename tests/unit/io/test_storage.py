"""Locations are text for both FileIOs, and only regular local files are opened.

The names are those of files made with ``pathlib``, so what is on disk tells whether the right file was opened. What Java does: Hadoop's
``Path(String)`` takes everything after scheme and authority as the path.
"""

from __future__ import annotations

import os
import pickle
import socket
from pathlib import Path
from typing import Any

import pytest

from icelock.errors import FormatError
from icelock.io.listing import delete_files, list_files
from icelock.io.locations import asks_elsewhere, lies_below, real_place, split_location
from icelock.io.storage import ArrowFileIO, open_storage
from icelock.io.storage_fsspec import FsspecFileIO

NAMES = (
    "a#b",
    "a?b",
    "a%23b",
    "a%b",
    "a b",
    "ä",
    "a+b",
    "a;b",
    "a@b",
    "a\\b",
    "a\nb",
    "a*b",
    "a[b]",
    "{a,b}",
    "a&b=c",
    "a:b",
    "~",
    "a'b",
    '"',
)
BOTH = pytest.mark.parametrize("io", [ArrowFileIO(), FsspecFileIO({})], ids=["arrow", "fsspec"])


@BOTH
@pytest.mark.parametrize("prefix", ["", "file:", "file://"], ids=["path", "file:", "file://"])
@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_where_its_location_says(tmp_path: Path, io: Any, prefix: str, name: str) -> None:
    folder = f"{prefix}{tmp_path}/{name}"
    with io.new_output(f"{folder}/{name}.avro").create() as stream:
        stream.write(b"here")
    path = tmp_path / name / f"{name}.avro"
    assert path.read_bytes() == b"here"
    (tmp_path / "axb").write_bytes(b"another")
    (tmp_path / name / "axb.avro").write_bytes(b"another, which a pattern would match")
    with io.new_input(f"{folder}/{name}.avro").open() as stream:
        assert stream.read() == b"here"
    assert {file.location for file in list_files(io, folder)} == {f"{folder}/{name}.avro", f"{folder}/axb.avro"}
    assert delete_files(io, [f"{folder}/{name}.avro"]) == []
    assert not path.exists()
    assert (tmp_path / name / "axb.avro").exists()


@BOTH
@pytest.mark.parametrize("prefix", ["", "file://", "s3://bucket"])
def test_a_location_with_a_nul_is_no_location(tmp_path: Path, io: Any, prefix: str) -> None:
    """Arrow says so by an error of its own, and C code may end the path there."""
    (tmp_path / "a").touch()
    for use in (lambda place: io.new_input(place).open(), lambda place: io.new_output(place).create(), io.delete):
        with pytest.raises(FormatError, match="contains a NUL"):
            use(f"{prefix}{tmp_path}/a\0b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("name", NAMES)
def test_a_key_in_a_bucket_is_what_the_location_says(name: str) -> None:
    assert ArrowFileIO.parse_location(f"s3a://bucket/{name}/x") == ("s3a", "bucket", f"bucket/{name}/x")


def test_the_storage_is_chosen_by_the_scheme_whatever_follows(tmp_path: Path) -> None:
    """``s3://[`` is no URL to urllib, which raises ValueError."""
    assert isinstance(open_storage({}, "s3://[bucket/x"), ArrowFileIO)
    assert isinstance(open_storage({"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}, str(tmp_path)), FsspecFileIO)
    io = pickle.loads(pickle.dumps(open_storage({}, str(tmp_path))))  # noqa: S301 - our own bytes
    assert isinstance(io, ArrowFileIO)
    with pytest.raises(FormatError, match="no storage for the scheme 'http'"):
        io.new_input("http://127.0.0.1/x")


@BOTH
@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "socket", "device", "directory"])
@pytest.mark.parametrize("prefix", ["", "file:", "file://"], ids=["path", "file:", "file://"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, io: Any, kind: str, prefix: str) -> None:
    """A pipe without a writer would hang, /dev/zero would never end."""
    path = tmp_path / "x"
    if kind.endswith("pipe"):
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "x").symlink_to(tmp_path / "pipe")
    elif kind == "socket":
        monkeypatch.chdir(tmp_path)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("x")
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(FormatError, match=f"x is a .*{kind.rpartition(' ')[2]}, expected a file"):
        io.new_input(f"{prefix}{path}").open()


BELOW = [
    ("/wh/t/metadata/a", "/wh/t", True),
    ("file:///wh/t/a", "file:/wh/t/", True),
    ("file:/wh/t/a", "/wh/t", True),
    ("s3a://b/t/a", "s3://b/t", True),
    ("/wh/t2/a", "/wh/t", False),
    ("/wh/t", "/wh/t", False),
    ("/wh/t/", "/wh/t", False),
    ("/wh/t/../u/a", "/wh/t", False),
    ("/wh/t/./a", "/wh/t", False),
    ("file:///wh/t/x/..", "/wh/t", False),
    ("/wh/t/..\\u", "/wh/t", False),
    ("s3://b/t/../u", "s3://b/t", False),
    ("s3://b/t//u", "s3://b/t", False),
    ("s3://b2/t/a", "s3://b/t", False),
    ("gs://b/t/a", "s3://b/t", False),
    ("abfss://c@other/t/a", "abfss://c@host/t", False),
    ("/a", "/", False),
    ("s3://b/a", "s3://b", False),
    ("file://host/wh/t/a", "file:///wh/t", False),
    ("/wh/t/a\0", "/wh/t", False),
    ("/wh/t/%2e%2e/a", "/wh/t", True),  # a name: nothing is unquoted
]


@pytest.mark.parametrize(("location", "folder", "below"), BELOW)
def test_below_a_folder(location: str, folder: str, *, below: bool) -> None:
    assert lies_below(location, folder) is below


def test_a_link_leads_out_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "u").mkdir()
    (tmp_path / "t" / "link").symlink_to(tmp_path / "u")
    assert lies_below(f"{tmp_path}/t/a", f"{tmp_path}/t")
    assert not lies_below(f"{tmp_path}/t/link/a", f"{tmp_path}/t")


def test_all_names_of_a_file_are_one_place(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "link").symlink_to(tmp_path / "t")
    assert {
        real_place(f"{start}{tmp_path}/t{middle}/a") for start in ("", "file:", "file://") for middle in ("", "/link", "/link/link")
    } == {f"{tmp_path}/t/a"}
    assert real_place(f"s3a://b{tmp_path}/t/link/a") == f"b{tmp_path}/t/link/a"


def test_who_would_be_asked() -> None:
    assert not asks_elsewhere("/a/b", "file:///c", "/x")
    assert not asks_elsewhere("s3n://b/x", "s3://b/y", "s3://b/t")
    assert not asks_elsewhere("hdfs:///x", "hdfs://n:8020/y", "hdfs://n:8020/t")
    assert asks_elsewhere("hdfs://evil:8020/x", "hdfs://n:8020/y", "hdfs://evil:8020/t")
    assert asks_elsewhere("http://127.0.0.1/x", "/a", "http://127.0.0.1/t")
    assert asks_elsewhere("/etc/passwd", "s3://b/y", "/etc")


def test_parts_of_a_location() -> None:
    assert split_location("S3://b/x#y?z") == ("s3", "b", "/x#y?z")
    assert split_location("/a:b/c") == ("file", "", "/a:b/c")
