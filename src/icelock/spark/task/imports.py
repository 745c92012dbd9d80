"""What a task does about modules once it has imported its own, so that the next task of the process begins sooner.

PySpark readies a Python worker for each task. It lets Python look again for modules that came (``importlib.invalidate_caches``): before
Python 3.12 every folder of a zip file from which something was imported then reads the whole directory of the file, and PySpark, which is a
zip file itself, has sixteen such folders (measured: 0.25 s of CPU a task, more than the work of most). It collects garbage after each
task, for which our imports are 60 ms.

Source: CPython's ``zipimport`` (3.11: ``zipimporter.invalidate_caches``), PySpark's ``worker_util.setup_spark_files``.
"""

from __future__ import annotations

import gc
import sys
import zipimport
from functools import cache


def settle_imports() -> None:
    """Let the process's next task begin sooner. To be called when a task's modules are imported, in each task."""
    _freeze()
    forget_folders_in_zips()


@cache
def _freeze() -> None:
    """Exclude our imports from garbage collection, once a process."""
    gc.freeze()


def forget_folders_in_zips() -> None:
    """Forget what looks for modules in folders of zip files, but for the files' own roots.

    Python makes one anew where it is needed, by the directory that the root's has read: what came to the zip file is found as before.
    """
    known = sys.path_importer_cache
    found = [(path, one) for path, one in tuple(known.items()) if isinstance(one, zipimport.zipimporter)]
    roots = {one.archive for _, one in found if not one.prefix}
    for path, one in found:
        if one.prefix and one.archive in roots:
            known.pop(path, None)
