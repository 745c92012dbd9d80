"""How many CPUs this process may use: its affinity, and the quota of its control groups (Linux), as a container's limit sets it."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Final

_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")


def usable_cpus(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """Return the number of whole CPUs, 1 at least."""
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        found = os.process_cpu_count() or 1
    elif hasattr(os, "sched_getaffinity"):
        found = len(os.sched_getaffinity(0))
    else:
        found = os.cpu_count() or 1
    return max(1, min([found, *_quotas(groups, own)]))


def _quotas(groups: Path, own: Path) -> list[int]:
    """Return the CPUs that each group of this process allows. Source: Linux, cgroup-v2.rst (cpu.max) and sched-bwc.rst (version 1)."""
    return [quota for folder in _folders(groups, own) if (quota := _quota(folder)) is not None]


def _folders(groups: Path, own: Path) -> list[Path]:
    """Return the folders of the process's groups, and of those above them, in which a container sees its own as the root."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
    found = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers or "cpu" in controllers.split(","):
            place = PurePosixPath(path.lstrip("/"))
            root = groups / controllers if controllers else groups
            found += [root / one for one in (place, *place.parents)]
    return found


def _quota(folder: Path) -> int | None:
    """Return a group's quota in CPUs, None if it has none."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((folder / name).read_text(encoding="ascii") for name in names).split()
            if int(quota) > 0 and int(period) > 0:
                return int(quota) // int(period)
        except (OSError, ValueError):  # there is no such file, or "max"
            continue
    return None
