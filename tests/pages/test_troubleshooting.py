"""The messages of docs/troubleshooting.md are those that are raised: a text that was changed in the source is changed there too."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.helpers.places import ROOT

# What others say: PyIceberg, SQLite, PySpark, Python.
OF_OTHERS = {
    "CommitStateUnknownException",
    "Java gateway process exited",
    "ModuleNotFoundError: No module named 'icelock'",
    "Must not set both catalog type and py-catalog-impl",
    "PySpark does not yet fully support pandas",
    "REQUIRES_SINGLE_PART_NAMESPACE",
    "database is locked",
}


def messages() -> Iterator[str]:
    """The messages of the page: the code at the beginning of each row of its tables."""
    for line in (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8").splitlines():
        if found := re.match(r"\| (`+)(.+?)\1", line):
            yield found[2].strip()


def test_messages_are_in_the_source():
    source = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src" / "icelock").rglob("*.py")))
    there = [*messages()]
    assert len(there) > 15
    assert {*there} >= OF_OTHERS
    assert [message for message in there if message not in source and message not in OF_OTHERS] == []
