"""The pictures of an audit's page as SVG text: drawn for paper and screen, readable without colour, with a title for each part.

Colours are classes of the page's style sheet. Whatever comes from a table is escaped here.

Not here: the page around them (``audit.html``).
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from icelock.audit.report import KekReport, MasterKeyReport, SnapshotReport
from icelock.shown import utc

WIDTH: Final = 720
ROWS: Final = 24
"""KEKs that a picture shows; those with the most bytes come first."""
_COLUMNS: Final = 48
_LIFE_DAYS: Final = 730
_LABEL: Final = 250
_ROW: Final = 30
_NEAR: Final = 40
_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB", "PB")
_STEP: Final = 1000


def text(value: object) -> str:
    """Return a value as text of an HTML document."""
    return html.escape(str(value), quote=True)


def size(count: int) -> str:
    """Return a number of bytes for people, in powers of 1000."""
    amount, unit = float(count), 0
    while amount >= _STEP and unit < len(_UNITS) - 1:
        amount, unit = amount / _STEP, unit + 1
    return f"{count} bytes" if not unit else f"{amount:.1f} {_UNITS[unit]}"


def day(ms: int | None) -> str:
    """Return a date in UTC."""
    return (utc(ms) or "unknown")[:10]


def short(value: str, most: int) -> str:
    """Return a text with its middle left out if it is long."""
    return value if len(value) <= most else f"{value[: most - 9]}…{value[-8:]}"


def _picture(height: float, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{text(title)}" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{text(title)}</title>{''.join(parts)}</svg>"
    )


def _rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:  # noqa: PLR0913 - a rectangle
    inner = f"<title>{text(title)}</title>" if title else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{max(0.0, height):.1f}" class="{kind}">{inner}</rect>'


def _words(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{text(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


class _Column(NamedTuple):
    encrypted: int
    plain: int
    title: str


def _columns(snapshots: Sequence[SnapshotReport]) -> list[_Column]:
    """Put snapshots together if there are many; a column shows its worst one, so that nothing plain is hidden."""
    known = [one for one in snapshots if one.encrypted is not None]
    some = -(-len(known) // _COLUMNS) or 1
    columns = []
    for start in range(0, len(known), some):
        group = known[start : start + some]
        worst = max(group, key=lambda one: (one.plain or 0, one.at_ms))
        more = f" (of {len(group)} snapshots, the worst)" if len(group) > 1 else ""
        title = f"snapshot {worst.id}, {utc(worst.at_ms)}: {worst.encrypted} encrypted, {worst.plain} plain files{more}"
        columns.append(_Column(worst.encrypted or 0, worst.plain or 0, title))
    return columns


def coverage(snapshots: Sequence[SnapshotReport]) -> str:
    """Return encrypted and plain files of each snapshot, the oldest first; empty if no manifests were read."""
    columns = _columns(snapshots)
    if not columns:
        return ""
    left, top, bottom, height = 52, 12, 168, 200
    most = max(2, *(one.encrypted + one.plain + (one.encrypted + one.plain) % 2 for one in columns))
    wide = min(56.0, (WIDTH - left - 8) / len(columns))
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = bottom - (bottom - top) * share
        parts += [_line(left, y, WIDTH - 8, y), _words(left - 8, y + 4, f"{most * share:g}", anchor="end")]
    for number, one in enumerate(columns):
        x, gap = left + number * wide, min(3.0, wide / 5)
        high = (bottom - top) * one.encrypted / most
        low = (bottom - top) * one.plain / most
        parts.append(_rect(x + gap / 2, bottom - high, wide - gap, high, "encrypted", one.title))
        if one.plain:
            parts.append(_rect(x + gap / 2, bottom - high - max(3.0, low), wide - gap, max(3.0, low), "plain", one.title))
    first, last = snapshots[0], snapshots[-1]
    end = left + wide * len(columns)
    parts.append(_words(left, bottom + 20, day(first.at_ms)))
    if end - left > _LABEL:
        parts.append(_words(end, bottom + 20, day(last.at_ms), anchor="end"))
    title = f"Encrypted and plain files of {len(snapshots)} snapshots, from {day(first.at_ms)} to {day(last.at_ms)}"
    return _picture(height, title, parts)


def key_tree(masters: Sequence[MasterKeyReport], keks: Sequence[KekReport]) -> str:
    """Return master keys, the KEKs that each wraps, and the snapshots below each KEK; empty if there are no keys."""
    parts: list[str] = []
    y = 4.0
    for master in masters:
        own = [kek for kek in keks if kek.master_key_id == master.id]
        above = y
        for kek in own:
            parts += _kek_row(kek, y)
            y += 56
        middle = (above + y - 56) / 2 + 22
        parts += [_line(190, middle, 206, middle, "link"), _line(206, above + 22, 206, y - 34, "link")]
        parts += [_rect(1, middle - 22, 189, 44, "master", master.id), _words(10, middle - 4, short(master.id, 20), "strong")]
        parts.append(_words(10, middle + 13, f"{_number(master.snapshots, 'snapshot')}, {size(master.lost.bytes)}", "small"))
    return _picture(y, f"{len(masters)} master keys and {len(keks)} KEKs", parts) if parts else ""


def _kek_row(kek: KekReport, y: float) -> Iterator[str]:
    state = "opens" if kek.opens else "does not open"
    version = f", version {kek.version}" if kek.version is not None else ""
    yield _line(206, y + 22, 222, y + 22, "link")
    yield _rect(222, y, 226, 44, "kek" if kek.opens else "kek wrong", f"KEK {kek.id}")
    yield _words(232, y + 18, short(kek.id, 26), "mono")
    yield _words(232, y + 35, f"{state}{version}", "small")
    yield _line(448, y + 22, 472, y + 22, "link")
    yield _rect(472, y, 247, 44, "snapshots")
    if kek.snapshots:
        yield _words(482, y + 18, f"{_number(len(kek.snapshots), 'snapshot')}; {short(', '.join(kek.refs) or 'no refs', 16)}", "small")
        yield _words(482, y + 35, f"{day(kek.first_ms)} to {day(kek.last_ms)}", "small")
    else:
        yield _words(482, y + 27, "no snapshot needs it", "small")


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def sizes(keks: Sequence[KekReport]) -> str:
    """Return for each KEK the bytes that its snapshots reach, and which of them nothing else opens; empty if no file was opened."""
    most = max((kek.reached.bytes for kek in keks), default=0)
    if not most:
        return ""
    parts = []
    for number, kek in enumerate(keks):
        y, span = number * _ROW + 4, WIDTH - _LABEL - 150
        wide, alone = span * kek.reached.bytes / most, span * kek.lost.bytes / most
        title = f"{kek.id}: reaches {size(kek.reached.bytes)} in {kek.reached.files} files; {size(kek.lost.bytes)} open by it alone"
        parts += [_words(0, y + 15, short(kek.id, 28), "mono"), _rect(_LABEL, y, wide, 20, "shared", title)]
        parts += [_rect(_LABEL, y, alone, 20, "encrypted", title)]
        parts.append(_words(_LABEL + wide + 8, y + 15, f"{size(kek.reached.bytes)}, {kek.reached.files} files", "small"))
    return _picture(len(keks) * _ROW + 8, "Bytes that each KEK opens", parts)


def ages(keks: Sequence[KekReport]) -> str:
    """Return the age of each KEK against 730 days; empty if none has an age."""
    known = [kek for kek in keks if kek.age_days is not None]
    if not known:
        return ""
    most = max(_LIFE_DAYS * 1.1, *(float(kek.age_days or 0) for kek in known))
    span, bottom = WIDTH - _LABEL - 110, len(known) * _ROW + 8
    limit = _LABEL + span * _LIFE_DAYS / most
    parts = []
    for number, kek in enumerate(known):
        y, days = number * _ROW + 4, max(0, kek.age_days or 0)
        kind = "old" if days >= _LIFE_DAYS else "encrypted"
        parts += [_words(0, y + 15, short(kek.id, 28), "mono")]
        parts.append(_rect(_LABEL, y, max(2.0, span * days / most), 20, kind, f"{kek.id}: {days} days old, made {utc(kek.created_ms)}"))
        beside = _LABEL + max(2.0, span * days / most) + 8
        parts.append(_words(beside if abs(beside - limit) > _NEAR or beside > limit else limit + 8, y + 15, _number(days, "day"), "small"))
    parts += [_line(limit, 0, limit, bottom, "limit"), _words(limit, bottom + 14, f"{_LIFE_DAYS} days", "small", "middle")]
    parts.append(_words(_LABEL, bottom + 14, "0", "small", "middle"))
    return _picture(bottom + 22, f"Ages of {len(known)} KEKs against {_LIFE_DAYS} days", parts)
