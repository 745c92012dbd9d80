"""What benchmarks of two engines print: a line for each case, with the ratio of the second to the first; or JSON.

Not here: measuring (``bench_runs``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import click
from bench_runs import Times
from rich.console import Console
from rich.table import Table

Line = tuple[str, dict[str, Times]]


def figures(times: Times, digits: int = 2) -> str:
    """Return the least and the median wall time, and the median CPU time, in seconds."""
    return f"{times.best():.{digits}f} / {times.median():.{digits}f}, {times.median_cpu():.{digits}f}"


def as_json(lines: Sequence[Line]) -> str:
    """Return the seconds of each run."""
    return json.dumps([[what, {name: {"wall_s": t.wall, "cpu_s": t.cpu} for name, t in times.items()}] for what, times in lines])


def show(lines: Sequence[Line], *, title: str = "", digits: int = 2) -> None:
    """Print a table of lines of the same two engines."""
    first, second = lines[0][1]
    table = Table(title=f"{title}s: min / median, CPU; ratio: min / median / CPU")
    for head in ("", first, second, f"{second} ÷ {first}"):
        table.add_column(head)
    for what, times in lines:
        one, other = times.values()
        ratios = (f"{figure(other) / figure(one):.2f}" for figure in (Times.best, Times.median, Times.median_cpu))
        table.add_row(what, figures(one, digits), figures(other, digits), " / ".join(ratios))
    Console(width=160).print(table)


def told(line: Line, seconds: float, digits: int = 2) -> None:
    """Tell a line on standard error when it was measured."""
    shown = ", ".join(f"{engine} {figures(times, digits)}" for engine, times in line[1].items())
    click.echo(f"{seconds:4.0f} s  {line[0]}: {shown}", err=True)
