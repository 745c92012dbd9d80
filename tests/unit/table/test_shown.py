"""Results as text and as HTML."""

from __future__ import annotations

from icelock.maintenance import Leftovers, Optimized, OptimizeStep, Outcome
from icelock.table.maintenance.compact import Compacted
from icelock.table.maintenance.expire import Expired


def test_repr_says_what_was_done_in_one_line() -> None:
    assert repr(Compacted()) == "Compacted()"
    assert repr(Compacted(rewritten_files=6, added_files=1, snapshots=(7,))) == "Compacted(rewritten_files=6, added_files=1, snapshots=(7))"
    many = tuple(f"f{number}" for number in range(1_000))
    assert repr(Expired(snapshots=(1, 2), deleted=1_000, files=many)) == (
        "Expired(snapshots=(1, 2), deleted=1000, files=('f0', 'f1', 'f2', ... 1000 in all))"
    )
    assert repr(Leftovers(files=(), keys=())) == "Leftovers()"


def test_html_has_the_steps_and_takes_no_text_for_tags() -> None:
    step = OptimizeStep(name="compact", outcome=Outcome.FAILED, why="<b>no</b>", seconds=1.25, result=Compacted(groups=2))
    html = Optimized(table="db.<t>", steps=(step,), dry_run=True)._repr_html_()
    assert "<th>table</th><td>&#x27;db.&lt;t&gt;&#x27;</td>" in html
    assert "<th>outcome</th><td>failed</td>" in html
    assert "&lt;b&gt;no&lt;/b&gt;" in html
    assert "<th>groups</th><td>2</td>" in html
    assert html.count("<table>") == html.count("</table>") == 3
