"""Writes docs/reference/dependencies.md: the packages that icelock and its extras bring, with the licences that their own metadata names.

python -m tools.licences    in the environment of make, whose versions are those of constraints/dev.txt
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "reference" / "dependencies.md"
# Extras for those who work on icelock itself, and names for several others.
_NOT_USERS: Final = {"demo", "dev", "docs", "test", "typed"}
# Where the page is written says nothing of what is on it.
_MACHINE: Final = {"python_version": "3.11", "python_full_version": "3.11.0", "sys_platform": "linux", "platform_system": "Linux"}
# Metadata that has the licence's text, or a name that is no identifier of SPDX.
_SPDX: Final = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
# python-dateutil names both of its licences by classifiers only.
_BY_CLASSIFIERS: Final = {"Dual License"}
_LONGEST: Final = 60
_HEAD: Final = """# Dependencies and their licences

Written by `python -m tools.licences` from the packages' own metadata, in the versions that are tested (`constraints/dev.txt`); change
`pyproject.toml`, not this page. `make dist` writes the same with versions as a bill of materials, `dist/icelock.cdx.json` (CycloneDX).

icelock is under the Apache License 2.0, and contains no code of others. Its wheel has none of these packages in it: pip installs them. Two
licences ask something of who passes the packages on, and neither reaches programs that import them: `LGPL-3.0-only` (`psycopg`, only with
the extra `postgres`) and `MPL-2.0` (`certifi`, certificates).

"""


def packages() -> dict[str, set[str]]:
    """Return what is installed with icelock, by name: with which extras, or "" if with every install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    given = {"": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, set[str]] = defaultdict(set)
    for extra, lines in given.items():
        if extra not in _NOT_USERS:
            for name in _closure(map(Requirement, lines), given):
                found[name].add(extra)
    return found


def _closure(requirements: Iterable[Requirement], own: dict[str, list[str]]) -> set[str]:
    """Return the names of all that these requirements bring."""
    waiting, seen, names = list(requirements), set[str](), set[str]()
    while waiting:
        requirement = waiting.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        name = canonicalize_name(requirement.name)
        if name == "icelock":
            waiting += [Requirement(line) for extra in requirement.extras for line in own[extra]]
            continue
        names.add(name)
        needs = map(Requirement, distribution(name).requires or [])
        extras = requirement.extras or {""}
        waiting += [
            need for need in needs if not need.marker or any(need.marker.evaluate({**_MACHINE, "extra": extra}) for extra in extras)
        ]
    return names


def licence(name: str) -> str:
    """Return what a package's metadata says of its licence, as SPDX writes it where that is clear."""
    metadata = distribution(name).metadata
    said = metadata.get("License-Expression") or (metadata.get("License") or "").strip()
    if not said or said in _BY_CLASSIFIERS or len(said.splitlines()) > 1 or len(said) > _LONGEST:
        classifiers = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier", []) if line.startswith("License ::")]
        said = " OR ".join(_SPDX.get(line, line) for line in classifiers) or said.partition("\n")[0]
    return _SPDX.get(said, said)


def render() -> str:
    """Return the page."""
    rows = [f"| {name} | {licence(name)} | {_with(extras)} |" for name, extras in sorted(packages().items())]
    return "\n".join([f"{_HEAD}| package | licence | comes with |", "| --- | --- | --- |", *rows, ""])


def _with(extras: set[str]) -> str:
    return "every install" if "" in extras else ", ".join(f"`{extra}`" for extra in sorted(extras))


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
