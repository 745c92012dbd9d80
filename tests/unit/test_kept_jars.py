"""Compiled classes that are kept: only in a folder that is the user's alone, and only as they were written."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from icelock.spark.jvm.jars import keep_jar, kept_jar


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "icelock"


def test_a_jar_comes_back_for_the_same_sources_only(folder):
    assert kept_jar("native", ["a", "b"]) is None
    path = keep_jar("native", ["a", "b"], b"jar")
    assert path == kept_jar("native", ["a", "b"])
    assert Path(path).read_bytes() == b"jar"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    for other in (["a"], ["ab"], ["a", "c"], ["b", "a"], ["a", "b", ""]):
        assert kept_jar("native", other) is None
    assert kept_jar("rules", ["a", "b"]) is None


@pytest.mark.parametrize("changed", [b"", b"ja", b"jar ", b"jbr"])
@pytest.mark.usefixtures("folder")
def test_a_changed_jar_is_not_used(changed):
    path = Path(keep_jar("native", ["a"], b"jar"))
    path.write_bytes(changed)
    assert kept_jar("native", ["a"]) is None
    assert not path.exists()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o750, 0o701])
def test_a_folder_that_others_can_enter_is_not_used(folder, mode):
    keep_jar("native", ["a"], b"jar")
    folder.chmod(mode)
    assert kept_jar("native", ["a"]) is None
    assert keep_jar("native", ["b"], b"jar") is None


def test_a_link_in_its_place_is_not_used(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert keep_jar("native", ["a"], b"jar") is None
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_without_a_place_nothing_is_kept(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert keep_jar("native", ["a"], b"jar") is None
    assert kept_jar("native", ["a"]) is None
