"""Mistakes on the command line."""

from __future__ import annotations

from typing import Final

from tools.mistakes.mistake import Mistake

# The storage refuses in place of a folder without rights, which the superuser may read.
_NO_RIGHT: Final = """
from unittest.mock import patch
from pyiceberg.io.pyarrow import PyArrowFile
refused = patch.object(PyArrowFile, "open", side_effect=PermissionError(13, "Permission denied"))
refused.start()
"""

# A script that says what Java 8 says.
_JAVA_8: Final = """
import os
from pathlib import Path
Path("java-8/bin").mkdir(parents=True, exist_ok=True)
Path("java-8/bin/java").write_text("#!/bin/sh\\necho 'openjdk version \\"1.8.0_392\\"' >&2\\n")
Path("java-8/bin/java").chmod(0o755)
os.environ["JAVA_HOME"] = f"{Path.cwd()}/java-8"
"""
# fmt: off

COMMANDS: Final = (
    Mistake(title="A command with a slip", code="icelock adit lake.shop.orders", says=("adit", "audit"), most=5, why="There is no such command.", remedy="Take the one that it offers, or see `icelock --help`."),
    Mistake(title="A catalog with a slip", code="icelock audit laek.shop.orders", says=("laek", "did you mean 'lake'?"), why="PyIceberg's configuration has no catalog of that name.", remedy="Take the one that it offers."),
    Mistake(title="A table with a slip", code="icelock expire lake.shop.odrers", says=("shop.odrers", "shop.orders"), why="The catalog has no table of that name.", remedy="Take the one that it offers."),
    Mistake(title="A namespace with a slip, in a command", code="icelock head lake.shpo.orders", says=("shpo.orders", "did you mean namespace shop?"), why="The catalog has no such namespace.", remedy="Take the one that it offers, or list them: `icelock tables lake`."),
    Mistake(title="A namespace in the place of a table", code="icelock history lake.shop", says=("namespace shop of catalog lake", "lake.shop.TABLE"), why="The command works on one table.", remedy="Name it; `icelock tables lake.shop` lists them."),
    Mistake(title="A quote that is not closed, in a command", code="""icelock head lake.shop.orders --where "city = 'Oslo\"""", says=("character 8", "the quote is not closed"), why="The shell takes the outer quotes, and the filter has one of its own.", remedy="Close it; the whole filter goes in double quotes."),
    Mistake(title="A folder that was moved", code="icelock count lake.shop.orders", before="import os\nos.rename('warehouse', 'moved')", after="import os\nos.rename('moved', 'warehouse')", says=("catalog lake", "warehouse/shop/orders/metadata", "put the table's folder back"), why="The catalog knows where the table's metadata file was.", remedy="Move it back: paths are absolute in all metadata."),
    Mistake(title="A folder that this user may not read", code="icelock describe lake.shop.orders", before=_NO_RIGHT, after="refused.stop()", says=("catalog lake", "Permission denied", "let this user read"), why="The rights on the files are another user's.", remedy="Run it as that user, or give the right to read."),
    Mistake(title="A keyring that is there already", code="icelock keyring init keyring.json --key-file keyring.key", says=("keyring.json", "already exists", "icelock keyring add"), why="A keyring is never overwritten: its keys would be lost.", remedy="Add keys to it, or name another file."),
    Mistake(title="No keyring at that path", code="icelock keyring list nowhere.json --key-file keyring.key", says=("nowhere.json", "icelock keyring init"), why="The path is wrong.", remedy="Correct it."),
    Mistake(title="The key file of another keyring", code="icelock keyring list keyring.json --key-file other.key", before="from pathlib import Path\nPath('other.key').write_text('00' * 32)\nPath('other.key').chmod(0o600)", says=("keyring.json", "other.key"), why="The keyring was made with another key file.", remedy="Name that one."),
    Mistake(title="A key that is there already", code="icelock keyring add keyring.json lake-key --key-file keyring.key", says=("'lake-key'", "icelock keyring rotate"), why="A new key under the name would hide the old one.", remedy="Choose another id, or make a new version."),
    Mistake(title="A span of time in words", code="icelock expire lake.shop.orders --older-than yesterday", says=("yesterday", "3d"), most=5, why="A span is a number and a unit.", remedy="Write it as `1d`."),
    Mistake(title="A level of rotation that is none", code="icelock rotate lake.shop.orders --level dek", says=("dek", "kek", "data"), most=5, why="There is no such level.", remedy="Choose one that it lists ([rotate](how-to/rotate.md))."),
    Mistake(title="An option of compaction that is none", code="icelock compact lake.shop.orders --option min-input-file=2", says=("min-input-file", "min-input-files"), why="There is no such option.", remedy="Take the one that it offers."),
    Mistake(title="A wrong filter", code="icelock compact lake.shop.orders --where \"ctiy = 'Oslo'\"", says=("'ctiy'", "did you mean 'city'?"), why="The table has no such column.", remedy="Take the one that it offers."),
    Mistake(title="An old Java", code="icelock demo", before=_JAVA_8, says=("JDK 17 or 21", "java-8/bin/java is Java 8", "JAVA_HOME"), why="`JAVA_HOME` goes before the `PATH`, and names a JDK that Spark 4 does not run on. A session that PySpark makes says `[JAVA_GATEWAY_EXITED]`, after Java's `UnsupportedClassVersionError`.", remedy="Install a JDK 17 or 21, and let `JAVA_HOME` name its folder."),
    Mistake(title="A folder for Java that has none", code="icelock demo", before="import os\nos.environ['JAVA_HOME'] = '/nowhere'", says=("JDK 17 or 21", "/nowhere, has no bin/java"), why="`JAVA_HOME` goes before the `PATH`.", remedy="Correct or unset it."),
)
SECTIONS: Final = {"On the command line": COMMANDS}
