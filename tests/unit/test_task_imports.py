"""What a task leaves of the importers of zip files: one a file, by which Python finds what comes to the file later, too."""

from __future__ import annotations

import importlib
import sys
import zipfile
import zipimport
from collections.abc import Iterator
from pathlib import Path

import pytest

from icelock.spark.task.imports import forget_folders_in_zips


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Path]:
    """A zip file on Python's path, with a package and one in it."""
    path = tmp_path / "zipped.zip"
    with zipfile.ZipFile(path, "w") as file:
        for name in ("zipped/__init__.py", "zipped/inner/__init__.py", "zipped/inner/first.py"):
            file.writestr(name, "")
    sys.path.insert(0, str(path))
    yield path
    sys.path.remove(str(path))
    for known in (sys.modules, sys.path_importer_cache):
        for name in [name for name in known if name.startswith(("zipped", str(path)))]:
            del known[name]


def folders(archive: Path) -> list[str]:
    """Where in a zip file an importer looks."""
    known = [one for one in sys.path_importer_cache.values() if isinstance(one, zipimport.zipimporter)]
    return sorted(one.prefix for one in known if one.archive == str(archive))


def test_one_importer_a_zip_file_stays_and_finds_what_comes(archive: Path) -> None:
    importlib.import_module("zipped.inner.first")
    assert folders(archive) == ["", "zipped/", "zipped/inner/"]
    forget_folders_in_zips()
    assert folders(archive) == [""]
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("zipped/inner/second.py", "value = 2")
        file.writestr("zipped/third.py", "value = 3")
    importlib.invalidate_caches()
    assert importlib.import_module("zipped.inner.second").value == 2
    assert importlib.import_module("zipped.third").value == 3


def test_a_folder_without_the_files_own_importer_keeps_its_own(archive: Path) -> None:
    """As where a folder in a zip file is on Python's path: nothing else would read the directory again."""
    sys.path[0] = str(archive / "zipped")
    try:
        importlib.import_module("inner.first")
        forget_folders_in_zips()
        assert "zipped/" in folders(archive)
    finally:
        sys.path[0] = str(archive)
        for name in ("inner", "inner.first"):
            sys.modules.pop(name, None)
