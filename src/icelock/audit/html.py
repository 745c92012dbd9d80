"""``page``: an audit as one HTML page that needs nothing else: no script, no font, no address.

It is for people who do not run commands: what was found, in words, tables and pictures, on a screen of any width and on paper. Names of
tables, keys and files are others' text: escaped, and set apart from the direction of writing around them.

Not here: the pictures (``audit.svg``), what is in a report (``audit.report``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from icelock.audit import svg
from icelock.audit.report import AuditReport, KekReport, TableReport, Verdict
from icelock.audit.svg import size, text
from icelock.shown import utc

_STYLE: Final = """
:root{--ink:#1a2330;--dim:#566273;--line:#cbd3dd;--back:#fff;--panel:#f5f7fa;--blue:#1f6fb2;--light:#a9cdea;--red:#b3261e;--amber:#9a5b00;
--green:#1a7f4b}
@media (prefers-color-scheme:dark){:root{--ink:#e6ebf2;--dim:#a3afbf;--line:#3b4757;--back:#12171e;--panel:#1b222c;--blue:#5aa9e6;
--light:#2c5777;--red:#ff8a80;
--amber:#f0b45b;--green:#6fd39b}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:60rem;padding:1.5rem 1rem 3rem;
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;color:var(--ink);background:var(--back)}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.3rem;margin:2.5rem 0 .5rem;padding-top:1rem;border-top:2px solid var(--line);overflow-wrap:anywhere}
h3{font-size:1.05rem;margin:1.75rem 0 .4rem}
p{margin:.35rem 0;overflow-wrap:anywhere}
.dim{color:var(--dim)}
.verdict{display:inline-block;padding:.1rem .7rem;border:2px solid currentColor;border-radius:1rem;font-weight:700;font-size:1rem;
vertical-align:middle}
.sound{color:var(--green)}.findings{color:var(--red)}.could-not-look{color:var(--amber)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(8rem,1fr));gap:.6rem;margin:1rem 0;padding:0;list-style:none}
.cards li{background:var(--panel);border:1px solid var(--line);border-radius:.5rem;padding:.5rem .75rem}
.cards b{display:block;font-size:1.35rem;line-height:1.3;overflow-wrap:anywhere}
.wide{overflow-x:auto}.tall table{min-width:46rem}
table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{text-align:left;vertical-align:top;padding:.35rem .6rem;border-bottom:1px solid var(--line)}
th{font-weight:600;color:var(--dim)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.f,th.f{min-width:7rem}td.f,td.f code{overflow-wrap:anywhere}td.w,th.w{white-space:nowrap}.verdict,.key{white-space:nowrap}
code,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,"Liberation Mono",monospace;font-size:.9em}
.error{color:var(--red);font-weight:700}.warning{color:var(--amber);font-weight:700}.note{color:var(--dim)}
figure{margin:.5rem 0;overflow-x:auto}
svg{display:block;width:100%;min-width:40rem;height:auto;font:13px system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif}
svg text{fill:var(--ink)}svg .small{font-size:12px;fill:var(--dim)}svg .mono{font-family:ui-monospace,Menlo,"Liberation Mono",monospace;
font-size:12px}svg .strong{font-weight:600;font-size:12px}
svg .encrypted{fill:var(--blue)}svg .shared{fill:var(--light)}svg .plain{fill:var(--red);stroke:var(--ink);stroke-width:1;
stroke-dasharray:3 2}
svg .old{fill:var(--amber)}svg .grid{stroke:var(--line)}svg .link{stroke:var(--dim);stroke-width:1.5}svg .limit{stroke:var(--red);
stroke-width:1.5;stroke-dasharray:5 3}
svg .master,svg .kek,svg .snapshots{fill:var(--panel);stroke:var(--blue);stroke-width:1.5;rx:6}svg .snapshots{stroke:var(--line)}
svg .wrong{stroke:var(--red);stroke-width:2.5}
.key{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 .8em;background:var(--blue)}.key.two{background:var(--light)}
.key.three{background:var(--red);outline:1px dashed var(--ink)}
@media (max-width:40rem){.stack thead{display:none}.stack tr{display:block;padding:.5rem 0;border-bottom:1px solid var(--line)}
.stack td{display:block;border:0;padding:.1rem 0}
.cards{grid-template-columns:repeat(2,1fr)}}
@media print{:root{--ink:#000;--dim:#333;--line:#999;--back:#fff;--panel:#fff;--blue:#1f6fb2;--light:#a9cdea;--red:#b3261e;
--amber:#9a5b00;--green:#1a7f4b}
@page{margin:15mm}body{max-width:none;padding:0;font-size:10.5pt}svg{min-width:0}figure,.wide{overflow:visible}.tall table{min-width:0;
font-size:8.5pt}.tall th,.tall td{padding:.25rem .3rem}.cards{grid-template-columns:repeat(3,1fr)}h2{break-before:page}
section:first-of-type h2{break-before:auto}
h3{break-after:avoid}.part,tr,.cards li{break-inside:avoid}*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: AuditReport) -> str:
    """Return the page."""
    what = " ".join(part for part in (report.catalog, report.name) if part)
    tables = [part for number, table in enumerate(report.tables, 1) for part in _section(number, table)]
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="referrer" content="no-referrer">',
        f"<title>Audit of {text(what)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>Audit of {_name(what)} {_verdict(report.verdict)}</h1>",
        f'<p class="dim">Made by icelock at {text(utc(report.made_ms))}. Times are UTC; sizes are bytes on storage.</p>',
        *(_overview(report) if len(report.tables) != 1 else ()),
        *tables,
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _name(value: str) -> str:
    return f"<bdi>{text(value)}</bdi>"


def _verdict(verdict: Verdict) -> str:
    return f'<span class="verdict {verdict.value.replace(" ", "-")}">{verdict.value}</span>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], columns: str, *, kind: str = "") -> str:
    """Return a table of cells that are HTML; ``columns``: n numbers, w words that are not broken, f free text; ``kind``: tall, stack."""
    kinds = [f'class="{column}"' for column in columns]
    head = "".join(f"<th {one}>{text(cell)}</th>" for one, cell in zip(kinds, heads, strict=True))
    body = "".join("<tr>" + "".join(f"<td {one}>{cell}</td>" for one, cell in zip(kinds, row, strict=True)) + "</tr>" for row in rows)
    return f'<div class="wide {kind}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cards(cards: Iterable[tuple[str, object]]) -> str:
    return '<ul class="cards">' + "".join(f"<li><b>{text(value)}</b>{text(what)}</li>" for what, value in cards) + "</ul>"


def _plain(table: TableReport) -> int:
    return sum(plain.files for _, plain in table.files.values())


def _overview(report: AuditReport) -> Iterator[str]:
    rows = (
        (
            f'<a href="#t{number}">{_name(table.table)}</a>',
            _verdict(table.verdict),
            str(table.wrong),
            str(table.notes),
            str(_plain(table)),
            str(table.unseen_count),
        )
        for number, table in enumerate(report.tables, 1)
    )
    yield _table(("table", "verdict", "findings", "notes", "plain files", "not looked at"), rows, "fwnnnn")


def _section(number: int, table: TableReport) -> Iterator[str]:
    yield f'<section id="t{number}"><h2>{_name(table.table)} {_verdict(table.verdict)}</h2>'
    yield f'<p class="dim">Looked at: {text(", ".join(table.depths) or "nothing")}; {text(table.scope)} snapshots.</p>'
    encrypted = sum(one.files for one, _ in table.files.values())
    yield _cards(
        (
            ("encrypted files", f"{encrypted:,}"),
            ("plain files", f"{_plain(table):,}"),
            ("findings", f"{table.wrong:,}"),
            ("notes", f"{table.notes:,}"),
            ("not looked at", f"{table.unseen_count:,}"),
            ("master key", table.master_key_id or "none"),
        )
    )
    yield from _findings(table)
    yield from _pictures(table)
    yield from _keys(table)
    yield from _numbers(table)
    yield from _about(table)
    yield "</section>"


def _findings(table: TableReport) -> Iterator[str]:
    if table.findings:
        yield "<h3>Findings</h3>"
        rows = (
            (
                f'<span class="{one.severity.value}">{one.severity.value}</span>',
                f"<b>{text(one.code)}</b><br><code>{_name(one.what)}</code>",
                f"{text(one.sentence)}.<br><span class='dim'>What to do: {_name(one.remedy)}.</span>",
            )
            for one in table.findings
        )
        yield _table(("severity", "what", "why, and what to do"), rows, "wff", kind="stack")
    left = sum(table.counts.values()) - len(table.findings)
    if left > 0:
        yield f"<p>{left:,} more findings of these kinds are counted and not listed.</p>"
    if table.unseen:
        yield "<h3>Not looked at</h3>"
        yield _table(("what", "why"), ((f"<code>{_name(one.what)}</code>", text(one.why)) for one in table.unseen), "ff", kind="stack")


def _shown(keks: Sequence[KekReport]) -> list[KekReport]:
    """Return the KEKs of pictures, in their order, those that matter most if there are many."""
    worth = sorted(keks, key=lambda one: (one.opens, -one.reached.bytes, -len(one.snapshots)))[: svg.ROWS]
    return [one for one in keks if one in worth]


def _pictures(table: TableReport) -> Iterator[str]:
    keks = _shown(table.keks)
    if len(keks) < len(table.keks):
        yield f"<p>Pictures show {len(keks)} of {len(table.keks)} KEKs; the table of keys has them all.</p>"
    legend = '<span class="key"></span>{}<span class="key {}"></span>{}'
    for title, about, picture in (
        ("Coverage by snapshot", legend.format("encrypted files", "three", "plain files"), svg.coverage(table.snapshots)),
        ("Key tree", "master key, the KEKs that it wraps, and what each KEK opens", svg.key_tree(table.master_keys, keks)),
        (
            "Sizes by key",
            legend.format("lost without this KEK", "two", "other KEKs lead there too"),
            svg.sizes(keks),
        ),
        ("Ages of KEKs", "new snapshots use a KEK for 730 days", svg.ages(keks)),
    ):
        if picture:
            yield f'<div class="part"><h3>{title}</h3><p class="dim">{about}</p><figure>{picture}</figure></div>'


def _keys(table: TableReport) -> Iterator[str]:
    if not table.keks:
        return
    yield "<h3>Keys</h3>"
    masters = (
        (_name(one.id), _name(", ".join(one.refs) or "none"), str(one.snapshots), f"{one.lost.files:,}", size(one.lost.bytes))
        for one in table.master_keys
    )
    yield _table(("master key", "branches and tags", "snapshots", "files lost without it", "bytes"), masters, "ffnnn")
    keks = (
        (
            f"<code>{_name(one.id)}</code>",
            _name(svg.short(one.master_key_id, 30) + (f", version {one.version}" if one.version is not None else "")),
            text("opens" if one.opens else "does not open"),
            f"{svg.day(one.created_ms)}<br>to {svg.day(one.until_ms)}",
            str(len(one.snapshots)),
            f"{one.reached.files:,}",
            f"{one.lost.files:,}",
            size(one.lost.bytes),
        )
        for one in table.keks
    )
    heads = ("KEK", "wrapped by", "state", "for new snapshots", "snapshots", "files", "lost without it", "bytes")
    yield _table(heads, keks, "wfwwnnnn", kind="tall")


def _numbers(table: TableReport) -> Iterator[str]:
    if table.files:
        yield "<h3>Files that snapshots reach</h3>"
        rows = (
            (text(kind), f"{one.files:,}", size(one.bytes), f"{other.files:,}", size(other.bytes))
            for kind, (one, other) in table.files.items()
        )
        yield _table(("kind", "encrypted", "size", "plain", "size of plain"), rows, "wnnnn")
    if table.objects:
        yield "<h3>Objects below the location</h3>"
        objects = ((text(kind), f"{one.files:,}", size(one.bytes)) for kind, one in table.objects.items())
        yield _table(("kind", "number", "size"), objects, "wnn")


def _about(table: TableReport) -> Iterator[str]:
    said = ", ".join(f"{name} {what}" for name, what in table.statements.items() if what != "none") or "nothing to compare it with"
    rows = (
        ("location", f"<code>{_name(table.location)}</code>"),
        ("metadata file", f"<code>{_name(table.metadata_file)}</code>"),
        ("what others say of it", text(said)),
        ("uuid", f"<code>{_name(table.uuid)}</code>"),
        ("format version", str(table.format_version)),
        ("length of data keys", f"{table.data_key_length} bytes"),
        ("time taken", f"{table.seconds:.1f} s"),
    )
    yield "<h3>The table</h3>"
    yield _table(("", ""), rows, "ff")
