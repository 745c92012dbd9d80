"""Writes docs/interop.md from the outcomes of a run of the matrix: ``make interop-docs``.

The page shows what ``features`` declare; a run proves it. So the page is written only when every cell of the matrix ran, on the pinned
versions, and passed; ``test_page`` holds the committed page against the declarations.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Final

from tests.interop import outcomes
from tests.interop.features import FEATURES
from tests.interop.matrix import CELLS, Absent, Feature, Refused
from tests.interop.toolchain import ICEBERG_VERSION

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "interop.md"
_PINNED: Final = {"Spark": "pyspark", "pyarrow": "pyarrow", "PyIceberg": "pyiceberg", "fastavro": "fastavro"}
_HEAD: Final = """# Java Iceberg and icelock, live

Written by `make interop-docs` from a run of `tests/interop`; change the tests, not this page.

Both engines are in one Spark session and use the same tables by name: Java Iceberg's Spark catalog, and icelock as a Spark data source
and in plain Python, each as a Hive catalog on one metastore, each with the same master keys. Nothing is mocked, and no file is copied.

| | version |
| --- | --- |
{versions}

## The matrix

*equal*: both engines read the same rows, and where the rows are known, these. Where icelock writes, Java loads the table after each commit
and finds the hash right, reads, appends a row, both read again, and every file of the table is encrypted. *refused*: icelock raises
a typed error that says why. A dash: there is nothing to run. Numbers are notes below. Spark lets a Python data source append and
overwrite; whatever else icelock does to a table is done in plain Python, in the last column too.

{tables}

{notes}
"""
_TAIL: Final = """
## Also in the run

- Histories: Java creates, icelock appends, Java updates by merge-on-read, icelock deletes, Java compacts and rewrites manifests, and on; a
  table with deletion vectors, position deletes and equality deletes at once; twenty random histories from a seed. After every step both
  engines read what a plain Python list says.
- Both engines commit to one table at the same time: every commit lands, and every snapshot can be read.
- Tables are renamed and properties set by one engine and kept by the other.
- Damage: every kind of file cut, extended, exchanged within and between tables, blocks moved, plain files in place of encrypted ones; key
  entries and timestamps exchanged or removed, with and without a fitting hash; the hash removed; metadata rolled back. In plain Python,
  and in Spark for one of each kind, the answer is a typed error that names the file, and no rows.
- `tests/faults`: a byte-flip sweep over a table of either engine: typed errors, or the same rows for bytes that a read does not need.

## Not in the matrix

- `timestamp_ns`, `timestamptz_ns`, `variant`, `unknown`: Java's Hive catalog has no type for them and refuses (tested). `geometry` and
  `geography` are off in Spark 4.1.
- ORC: Iceberg cannot encrypt it, so icelock refuses it in encrypted tables; in plain ones it is read (`tests/interop/test_convert.py`).
- The codecs brotli and lzo: the classes are not in Java's runtime jar.
- Promotion of date to timestamp: Java Iceberg {java} and PyIceberg refuse it.

## Run it

`make test` runs all of it; `make interop` this part. It needs a JDK (17 or 21, with `javac`), and Maven for the first run, which fetches
the Iceberg runtime jar into `.cache/`. Without them the tests are skipped with the reason, except in CI, where a skip is a failure.
"""
_COLUMNS: Final = ("Java → Python", "Java → Spark", "Python → Java", "Spark → Java")


def render(versions: Mapping[str, str]) -> str:
    """Return the page."""
    notes: dict[str, int] = {}
    tables = "\n\n".join(_table(group, list(features), notes) for group, features in groupby(FEATURES, key=lambda feature: feature.group))
    listed = "\n".join(f"{number}. {why}" for why, number in notes.items())
    shown = "\n".join(f"| {name} | {version} |" for name, version in versions.items())
    return _HEAD.format(versions=shown, tables=tables, notes=listed) + _TAIL.replace("{java}", versions["Java Iceberg"])


def _table(group: str, features: list[Feature], notes: dict[str, int]) -> str:
    rows = [f"| {group} | {' | '.join(_COLUMNS)} |", f"| --- |{' --- |' * len(_COLUMNS)}"]
    rows += [f"| {feature.title} | {' | '.join(_shown(feature.cell(cell), notes) for cell in CELLS)} |" for feature in features]
    return "\n".join(rows)


def _shown(cell: Refused | Absent | None, notes: dict[str, int]) -> str:
    if cell is None:
        return "equal"
    number = notes.setdefault(cell.why, len(notes) + 1)
    return f"{'refused' if isinstance(cell, Refused) else '–'} ({number})"  # noqa: RUF001 - the dash of the page


def pinned_versions() -> dict[str, str]:
    """Return the versions of make's environment, which the page is about."""
    pins = dict(line.split("==") for name in ("common", "dev") for line in _lines(ROOT / "constraints" / f"{name}.txt") if "==" in line)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {"Java Iceberg": ICEBERG_VERSION, **{name: pins[package] for name, package in _PINNED.items()}, "icelock": project["version"]}


def _lines(path: Path) -> Iterator[str]:
    return (line.strip() for line in path.read_text().splitlines())


def faults(found: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return what keeps outcomes from being the page: other versions, cells that did not run or did not pass."""
    said = [
        f"{name} is {found['versions'].get(name)}, pinned is {pin}"
        for name, pin in pinned_versions().items()
        if found["versions"].get(name) != pin
    ]
    cells = [f"{feature.name} {cell}" for feature in FEATURES for cell in CELLS if not isinstance(feature.cell(cell), Absent)]
    return said + [f"{cell}: {found['cells'].get(cell, 'did not run')}" for cell in cells if found["cells"].get(cell) != "passed"]


def main() -> int:
    """Write the page, or say why not."""
    wrong = faults(outcomes.load())
    if wrong:
        print("docs/interop.md was not written:", *wrong, sep="\n", file=sys.stderr)
        return 1
    PAGE.write_text(render(pinned_versions()), encoding="utf-8")
    print(f"{PAGE} written: {len(FEATURES)} features")
    return 0


if __name__ == "__main__":
    sys.exit(main())
