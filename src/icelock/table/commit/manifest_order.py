"""Which manifests of a snapshot are worth rewriting, and the order of their entries.

Manifests come in groups of one content (data or deletes) and one partition spec. A group is written anew

    whole                       if they are more than its size needs, one is too large, or they are not in the order of the partitions,
                                so that a filter cannot leave most of them out;
    those with removed entries  otherwise.

Entries are sorted by partition; within one they stay as they were. Up to ``_IN_MEMORY`` entries are held at once, and each manifest is
read once. Of more, the first pass reads partitions only (4 bytes an entry), and each further one the entries of the next ``_IN_MEMORY``:
a million files in one spec take 21 passes if all partitions are in all manifests, and two if they are nearly in order, since manifests
without an entry of a pass are not read.

Source: Java RewriteManifestsSparkAction (1.12). Not here: writing (``table.commit.manifest_rewrite``).
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile, PartitionFieldSummary
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType
from pyiceberg.utils.concurrent import ExecutorFactory

from icelock.metadata.sound_bounds import decoded_bounds
from icelock.plan.partition_set import identity_of, partition_kinds, partition_values

_IN_MEMORY: Final = 50_000
_TOO_SMALL, _TOO_LARGE = 0.75, 1.8  # of the target: between them nothing is gained
_CHUNK: Final = 64

_Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which manifests may be rewritten: of one partition spec (None: of all), and those that ``rewrite_if`` takes."""

    spec_id: int | None = None
    rewrite_if: Callable[[ManifestFile], bool] = lambda _manifest: True


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestGroup:
    """Manifests of one content and partition spec that are replaced together."""

    content: ManifestContent
    spec_id: int
    manifests: tuple[ManifestFile, ...]

    @property
    def key(self) -> tuple[int, int]:
        """What the manifests have in common."""
        return int(self.content), self.spec_id

    @property
    def paths(self) -> frozenset[str]:
        """Where the manifests lie."""
        return frozenset(manifest.manifest_path for manifest in self.manifests)

    @property
    def live(self) -> int:
        """How many entries are live, as the manifest list says."""
        return sum(map(_live, self.manifests))

    def outputs(self, target: int) -> int:
        """Return how many manifests of the target size to make."""
        size = sum(manifest.manifest_length for manifest in self.manifests)
        return max(1, min(math.ceil(size / target), self.live))


def groups_to_write(manifests: Sequence[ManifestFile], choice: Choice, target: int, metadata: TableMetadata) -> list[ManifestGroup]:
    """Return the groups of manifests to write anew, for manifests of ``target`` bytes."""
    by_key: dict[tuple[ManifestContent, int], list[ManifestFile]] = defaultdict(list)
    for manifest in manifests:
        if choice.spec_id in (None, manifest.partition_spec_id) and choice.rewrite_if(manifest):
            by_key[manifest.content, manifest.partition_spec_id].append(manifest)
    groups = []
    for (content, spec_id), found in sorted(by_key.items(), key=lambda item: (int(item[0][0]), item[0][1])):
        whole = _is_worth_it(found, target, metadata)
        replaced = tuple(manifest for manifest in found if whole or manifest.deleted_files_count != 0)
        if replaced:
            groups.append(ManifestGroup(content=content, spec_id=spec_id, manifests=replaced))
    return groups


def arranged_entries(group: ManifestGroup, io: FileIO, target: int) -> Iterator[Iterator[Any]]:
    """Yield for each new manifest its live entries, sorted by partition; each has to be taken before the next."""
    slots, kept = _slots(group, io)
    count = sum(map(len, slots))
    outputs = min(group.outputs(target), count)
    edges = [number * count // outputs for number in range(outputs + 1)] if outputs else []
    held: list[Any] = []
    start = end = 0
    for first, last in itertools.pairwise(edges):
        if last > end:
            start, end = first, max(last, next((edge for edge in reversed(edges) if edge <= first + _IN_MEMORY), last))
            held = _placed(group, io, slots, kept, start, end)
        yield iter(held[first - start : last - start])


def _slots(group: ManifestGroup, io: FileIO) -> tuple[list[Any], list[list[Any]] | None]:
    """Return for each manifest the places of its live entries in the sorted order, and the entries if they are few."""
    kept: list[list[Any]] | None = [] if group.live <= _IN_MEMORY else None
    numbers: dict[Any, int] = {}
    keys: list[_Key] = []
    found = []
    for entries in _read(group.manifests, io, _entries if kept is not None else _partitions):
        partitions = entries if kept is None else [partition_values(entry.data_file) for entry in entries]
        for values in partitions:
            if numbers.setdefault(identity_of(values), len(keys)) == len(keys):
                keys.append(tuple(map(_sort_key, values)))
        found.append(np.fromiter((numbers[identity_of(values)] for values in partitions), np.uint32, len(partitions)))
        if kept is not None:
            kept.append(entries)
    ranks = np.empty(len(keys), np.uint32)
    ranks[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys), dtype=np.uint32)
    order = np.argsort(ranks[np.concatenate(found)], kind="stable")
    places = np.empty(len(order), np.uint32)
    places[order] = np.arange(len(order), dtype=np.uint32)
    return np.split(places, np.cumsum([len(each) for each in found])[:-1]), kept


def _placed(group: ManifestGroup, io: FileIO, slots: list[Any], kept: list[list[Any]] | None, start: int, end: int) -> list[Any]:
    """Return the entries with these places, in order."""
    held: list[Any] = [None] * (end - start)
    wanted = [(slots[i] >= start) & (slots[i] < end) for i in range(len(slots))]
    chosen = [i for i in range(len(slots)) if wanted[i].any()]
    read = [kept[i] for i in chosen] if kept is not None else _read([group.manifests[i] for i in chosen], io, _entries)
    for i, entries in zip(chosen, read, strict=True):
        for row in np.flatnonzero(wanted[i]):
            held[slots[i][row] - start] = entries[row]
    return held


def _read(manifests: Sequence[ManifestFile], io: FileIO, what: Callable[[ManifestFile, FileIO], list[Any]]) -> Iterator[list[Any]]:
    """Read manifests side by side, some at a time, so that what was read does not pile up."""
    for start in range(0, len(manifests), _CHUNK):
        yield from ExecutorFactory.get_or_create().map(lambda manifest: what(manifest, io), manifests[start : start + _CHUNK])


def _entries(manifest: ManifestFile, io: FileIO) -> list[Any]:
    return list(manifest.fetch_manifest_entry(io, discard_deleted=True))


def _partitions(manifest: ManifestFile, io: FileIO) -> list[Any]:
    return [partition_values(entry.data_file) for entry in _entries(manifest, io)]


def _live(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _is_worth_it(manifests: Sequence[ManifestFile], target: int, metadata: TableMetadata) -> bool:
    size = sum(manifest.manifest_length for manifest in manifests)
    many = len(manifests) > max(1, math.ceil(size / (_TOO_SMALL * target)))
    large = any(manifest.manifest_length > _TOO_LARGE * target and _live(manifest) > 1 for manifest in manifests)
    return many or large or not _in_order(manifests, partition_kinds(metadata, manifests[0].partition_spec_id))


def _in_order(manifests: Sequence[ManifestFile], kinds: Sequence[IcebergType | None]) -> bool:
    """Whether manifests could be the parts of a sorted list of partitions, by their summaries."""
    spans = [[_span(summary, kind) for summary, kind in zip(manifest.partitions or (), kinds, strict=False)] for manifest in manifests]
    return all(len(span) == len(kinds) for span in spans) and _spans_in_order(spans)


def _spans_in_order(spans: Sequence[Sequence[tuple[_Key, _Key] | None]]) -> bool:
    if len(spans) < 2 or not spans[0]:  # noqa: PLR2004
        return True
    firsts = [span[0] for span in spans if span[0] is not None]
    if len(firsts) < len(spans):
        return False
    ordered = sorted(zip(firsts, spans, strict=True), key=lambda pair: pair[0])
    if any(before[0][1] > after[0][0] for before, after in itertools.pairwise(ordered)):
        return False
    alike = itertools.groupby((pair for pair in ordered if pair[0][0] == pair[0][1]), key=lambda pair: pair[0])
    return all(_spans_in_order([span[1:] for _, span in same]) for _, same in alike)


def _span(summary: PartitionFieldSummary, kind: IcebergType | None) -> tuple[_Key, _Key] | None:
    """Return the lowest and the highest value of a field in a manifest; None if they are not known."""
    bounds = decoded_bounds(kind, summary.lower_bound, summary.upper_bound)
    if bounds is None and (summary.lower_bound is not None or summary.upper_bound is not None):
        return None
    ends = [_sort_key(None)] if summary.contains_null else []
    ends += [_sort_key(float("nan"))] if summary.contains_nan else []
    ends += [] if bounds is None else map(_sort_key, bounds)
    return (min(ends), max(ends)) if ends else None


def _sort_key(value: Any) -> _Key:
    """Order partition values: null, then values, then NaN."""
    if value is None:
        return (0,)
    return (1, value) if value == value else (2,)  # noqa: PLR0124 - NaN
