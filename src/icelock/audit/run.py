"""``audit``: a table, the tables of a namespace, or of a whole catalog.

Not here: one table (``audit.table``), how a report is shown (``cli.audit``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyiceberg.exceptions import NoSuchTableError

from icelock import properties as names
from icelock.audit.file_check import CheckFiles
from icelock.audit.options import AuditOptions, Progress
from icelock.audit.processes import CheckByProcesses
from icelock.audit.report import AuditReport, TableReport
from icelock.audit.table import Subject, audit_table, could_not_look
from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.tables_below import tables_below
from icelock.errors import PolicyError

Told = Callable[[TableReport], None]


def audit(  # noqa: PLR0913 - keywords
    catalog: EncryptedCatalog,
    name: str = "",
    *,
    depth: str | Iterable[str] = "open",
    snapshots: str = "all",
    threads: int = 8,
    most_findings: int = 100,
    progress: Progress | None = None,
    told: Told | None = None,
) -> AuditReport:
    """Check whether everything of a table is encrypted and intact, and which keys open what; nothing is written.

    Without a name all tables of the catalog, with that of a namespace its tables and those below it, in the order of their names. It reads
    what catalog, KMS and storage have, by none of the code that reads and writes tables.

    Args:
        catalog: where the tables are.
        name: of a table or namespace, with dots.
        depth: ``metadata`` (keys and entries resolve), ``open`` (every list, manifest and footer authenticates), ``bytes`` (every byte
            does), ``foreign`` (also every object below the location), or several of them.
        snapshots: ``all`` or ``current``.
        threads: that open files, of this process and, where there is much to read, of others, at most one for each CPU
            (``audit.processes``); with 1 there is no other.
        most_findings: of each code that are kept; others are counted.
        progress: called with the number of files that were opened, and how many there are.
        told: called with each table's report.

    Raises:
        PolicyError: there is no such table or namespace, or an unknown option.
    """
    if not hasattr(catalog, "list_tables"):
        raise PolicyError(
            f"the audit takes a catalog and the name of a table, got a {type(catalog).__name__}: audit(catalog, 'shop.orders')"
        )
    options = AuditOptions.of(depth, snapshots=snapshots, threads=threads, most=most_findings)
    with CheckByProcesses() as check:
        return audit_tables(catalog, name, options, check, progress=progress, told=told)


def audit_tables(  # noqa: PLR0913 - as audit
    catalog: EncryptedCatalog,
    name: str,
    options: AuditOptions,
    check: CheckFiles,
    *,
    progress: Progress | None = None,
    told: Told | None = None,
) -> AuditReport:
    """Do the work of ``audit``, whose files ``check`` opens."""
    reports = []
    for table in sorted(tables_below(catalog, name, is_table=lambda table: _is_there(catalog, table))):
        reports.append(_audited(catalog, table, options, check, progress))
        if told is not None:
            told(reports[-1])
    return AuditReport(catalog=catalog.name or "", name=name, made_ms=options.now_ms, tables=tuple(reports))


def _is_there(catalog: EncryptedCatalog, name: str) -> bool:
    try:
        catalog.kept(name)
    except NoSuchTableError:
        return False
    except Exception:  # noqa: BLE001 - there is something of this name; why it cannot be looked at is said later
        return True
    return True


def _audited(catalog: EncryptedCatalog, name: str, options: AuditOptions, check: CheckFiles, progress: Progress | None) -> TableReport:
    try:
        kept = catalog.kept(name)
        limit = names.limit(catalog.properties, names.LIMIT_METADATA_BYTES)
        subject = Subject(
            name=name,
            catalog=catalog.name or "",
            kept=kept,
            kms=catalog.encryption.kms,
            metadata_bytes=limit,
            check_files=check,
        )
        return audit_table(subject, options, progress)
    except NoSuchTableError:
        return could_not_look(name, NoSuchTableError("the table was dropped meanwhile"))
    except Exception as e:  # noqa: BLE001 - whatever it is, the other tables are looked at, and it is said
        return could_not_look(name, e)
