"""The diagrams of the pages: docs/diagrams has their text, which Graphviz lays out, and the pictures, which the repository shows too.

    python -m tools.site.diagrams    draws all of them anew; needs Graphviz (apt-get install graphviz)

A picture has a style sheet of its own in place of Graphviz's colours, so that it is readable on a dark page too. It names the hash of its
text: a test sees that they belong together.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / "docs" / "diagrams"
# Top to bottom and no wider than a phone, on which a wide picture is unreadable.
_LOOKS: Final = [
    *("-Grankdir=TB", "-Gstyle=rounded", "-Gnodesep=0.25", "-Granksep=0.35", "-Gbgcolor=transparent", "-Gpad=0.1", "-Glabeljust=l"),
    *("-Gfontname=Verdana", "-Gfontsize=11"),
    *("-Nshape=box", "-Nstyle=rounded", "-Nfontname=Verdana", "-Nfontsize=11", "-Nmargin=0.14,0.08", "-Nheight=0.3"),
    *("-Efontname=Verdana", "-Efontsize=10", "-Earrowsize=0.7"),
]
_STYLE: Final = """<style>
text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1d2b36; stroke: none }
.edge path { fill: none; stroke: #5b6f7e; stroke-width: 1.3 }
.edge polygon { fill: #5b6f7e; stroke: #5b6f7e }
.edge text { fill: #44555f }
.node path, .node polygon { fill: #ffffff; stroke: #5b6f7e; stroke-width: 1.2 }
.node.key path { fill: #fff3cf; stroke: #b58900 }
.node.plain path, .cluster.plain > path { fill: #eef1f3; stroke: #8797a3 }
.node.sealed path, .cluster.sealed > path { fill: #dcebf7; stroke: #2f7fb5 }
.node.trusted path, .cluster.trusted > path { fill: #e4f3e6; stroke: #3f8f4f }
.cluster.untrusted > path { fill: #fbe7e3; stroke: #c0503a }
.cluster > path { stroke-width: 1.2 }
@media screen and (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .edge path { stroke: #9fb1bf }
  .edge polygon { fill: #9fb1bf; stroke: #9fb1bf }
  .edge text { fill: #b7c6d1 }
  .node path, .node polygon { fill: #22303b; stroke: #9fb1bf }
  .node.key path { fill: #4a3d12; stroke: #d9ac2b }
  .node.plain path, .cluster.plain > path { fill: #2b333a; stroke: #8797a3 }
  .node.sealed path, .cluster.sealed > path { fill: #17344a; stroke: #58a6d6 }
  .node.trusted path, .cluster.trusted > path { fill: #1c3823; stroke: #68b878 }
  .cluster.untrusted > path { fill: #43231d; stroke: #e08a76 }
}
</style>
"""


def source_hash(text: str) -> str:
    """Return what a picture names of its text."""
    return hashlib.sha256(text.encode()).hexdigest()


def draw(text: str) -> str:
    """Return a diagram's SVG.

    Raises:
        FileNotFoundError: Graphviz is not installed.
        subprocess.CalledProcessError: Graphviz does not understand the text, and said so.
    """
    drawn = subprocess.run(["dot", "-Tsvg", *_LOOKS], input=text, check=True, capture_output=True, text=True).stdout
    body = drawn[drawn.index("<svg") :]
    body = re.sub(r"<!--.*?-->\n?", "", body, flags=re.DOTALL)
    body = re.sub(r'<(path|polygon) (fill="[^"]*" )stroke="[^"]*"', r"<\1", body)
    body = re.sub(r' font-family="[^"]*"', "", body)
    head = f"<!-- Drawn by tools.site.diagrams from a text with the SHA-256 {source_hash(text)} -->\n"
    return re.sub(r"(<svg[^>]*>\n)", lambda found: found.group() + head + _STYLE, body, count=1).replace('pt"', 'px"', 2)


def main() -> None:
    """Draw all."""
    for path in sorted(FOLDER.glob("*.dot")):
        path.with_suffix(".svg").write_text(draw(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
