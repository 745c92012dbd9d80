"""Who does the work on files that maintenance needs: threads of this process, or an engine's tasks (``spark.maintain_tables``).

Planning and commits are always this process's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from icelock.table.maintenance.compaction.compact import CombineFiles, combine_here
from icelock.table.maintenance.rotation.copied_files import CopyFiles, copy_here
from icelock.table.rows.delete_rewrite import FindDeleted, find_here


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Who writes the rows of data files to new ones, who copies files under new keys, and who finds deleted rows."""

    combine: CombineFiles
    copy: CopyFiles
    find_deleted: FindDeleted


HERE: Final = Workers(combine=combine_here, copy=copy_here, find_deleted=find_here)
