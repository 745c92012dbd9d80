"""Why the engines differ where they do."""

from __future__ import annotations

from typing import Final

from tests.interop.sql_cases.case import DELTA, ROWS, SNAPSHOTS, STATEMENTS, Differs

ALL_PARTS: Final = (STATEMENTS, ROWS, SNAPSHOTS)

NO_CHANGE: Final = Differs("Java commits a snapshot although no row changes; icelock makes none.", (SNAPSHOTS,))
WHOLE_FILE: Final = Differs(
    "A file that loses its last row leaves the table in icelock, so its records are removed ones; in Java it stays, with a vector of all rows.",
    (SNAPSHOTS,),
)
# The same for cases that are run in both modes.
WHOLE_FILE_BY_DELTA: Final = {DELTA: WHOLE_FILE}
FEWER_ROWS: Final = Differs(
    "icelock writes the changed rows and the kept rows of a file into files of their own, so a later change rewrites fewer.", (SNAPSHOTS,)
)
NO_STAGING: Final = Differs("icelock does not stage writes, and refuses them.", ALL_PARTS)
AT_VERSION: Final = Differs(
    "Spark's analysis refuses, as icelock's table as of a version takes no rows; Java refuses when it plans the write."
)
REWRITTEN: Final = Differs("icelock rewrites a file of which the condition finds a part of the rows; Java refuses.", ALL_PARTS)
HAS_DEFAULTS: Final = Differs("icelock has defaults of columns in SQL.", (STATEMENTS, ROWS))
VERSION_3: Final = Differs("Encryption needs format version 3.", (STATEMENTS, ROWS))
CHECKED_AT_ONCE: Final = Differs("icelock refuses the property when it is set; Java takes it, and then no commit.", ALL_PARTS)
RENAMED: Final = Differs("Java 1.12 looks for the new name in the old schema, and fails.", (ROWS,))
NAN_IS_GREATEST: Final = Differs("NaN is greater than any number, in Spark as in SQL; Java leaves its partition out.", (ROWS,))
NO_ROWS_TAKEN: Final = Differs("Spark's analysis refuses, as icelock's metadata tables take no rows; Java refuses by itself.")
NO_OWNER: Final = Differs("icelock keeps no owner of a namespace that nobody names.", (ROWS,))
SPARKS_ERROR: Final = Differs("icelock raises the error that Spark has for it.")
NO_EMPTY_BRANCH: Final = Differs("icelock makes no empty snapshot for a branch to begin with.", ALL_PARTS)
NO_PROCEDURE: Final = Differs("icelock's error lists the procedures that there are; with Java, Spark says that it cannot load the routine.")
NO_ANCESTORS: Final = Differs("A table without snapshots has no ancestors, and no error, in icelock.")
NO_CHERRYPICK: Final = Differs("Refused by icelock: files belong to their snapshot, with its row ids.", ALL_PARTS)
EQUALITY_DELETES: Final = Differs("icelock does not tell delete files apart: the count of equality deletes is null.")
EXPIRED_FILE: Final = Differs(
    "The count of equality deletes is null, and the data file without rows, which icelock's DELETE removed, is deleted with its manifest."
)
NO_PARTITIONS: Final = Differs("Java does not count the changed partitions of a table that has none.")
NEW_FILES: Final = Differs("icelock writes the rows into new, encrypted files, so the table does not know the plain ones.", ALL_PARTS)
NO_ARGUMENT: Final = Differs("icelock refuses the argument.", (STATEMENTS, ROWS))
SIZES: Final = Differs("The two rows are in files of other sizes.")
TO_COME: Final = Differs("There is no such procedure in icelock.")

NO_VIEWS: Final = Differs("icelock's catalogs have no views; Spark's own select from their tables.", (STATEMENTS, ROWS))
NO_VIEWS_IN_QUERIES: Final = Differs(NO_VIEWS.why, (ROWS,))
ONLY_MOVED: Final = Differs("Java's table has rows that were only moved to another file, as deleted and inserted.", (ROWS,))


def together(*differences: Differs) -> Differs:
    """Return differences of one case as one."""
    parts = {part for difference in differences for part in difference.parts}
    return Differs(" ".join(difference.why for difference in differences), tuple(part for part in ALL_PARTS if part in parts))
