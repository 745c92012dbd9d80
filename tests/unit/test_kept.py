"""What was made of an object is kept as long as that object, and no longer."""

from __future__ import annotations

import gc

from icelock.kept import KeptByIdentity


class Thing:
    """Equal to every other."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]  # as PyIceberg's models with a dictionary


def test_an_object_s_value_is_made_once_and_equal_objects_have_their_own() -> None:
    made = iter(range(10))
    kept = KeptByIdentity(lambda _: next(made))
    one, other = Thing(), Thing()
    assert [kept.of(one), kept.of(other), kept.of(one), kept.of(other)] == [0, 1, 0, 1]


def test_an_object_that_is_gone_takes_its_value_along() -> None:
    kept = KeptByIdentity(id)
    things = [Thing() for _ in range(100)]
    for thing in things:
        assert kept.of(thing) == id(thing)
    assert len(kept) == 100
    del things[10:], thing
    gc.collect()
    assert len(kept) == 10
    for thing in [Thing() for _ in range(100)]:  # some where others were
        assert kept.of(thing) == id(thing)
