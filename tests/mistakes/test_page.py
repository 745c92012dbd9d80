"""docs/errors.md is what mistakes print; each message names the thing, what may be meant, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mistakes import page
from tools.mistakes.mistake import Mistake
from tools.mistakes.place import Place

LEAST = 60
MISTAKES = [mistake for each in page.SECTIONS.values() for mistake in each]
HERE = [mistake for title, each in page.SECTIONS.items() if title not in page.OF_SPARK for mistake in each]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("mistakes"))


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    return page.sections(page.PAGE.read_text(encoding="utf-8"))


def test_the_page_has_each_mistake_once(shown: dict[str, str]) -> None:
    titles = [mistake.title for mistake in MISTAKES]
    assert len(titles) == len(set(titles)) >= LEAST
    assert list(shown) == titles
    assert page.PAGE.read_text(encoding="utf-8") == page.render(shown)


@pytest.mark.parametrize("mistake", HERE, ids=lambda mistake: mistake.title)
def test_a_message_is_that_of_the_page(mistake: Mistake, place: Place, shown: dict[str, str]) -> None:
    message = place.message(mistake)
    assert mistake.faults(message) == [], message
    assert mistake.section(message) == shown[mistake.title], "run make errors-docs"


def test_a_bad_message_is_found(place: Place) -> None:
    mistake = Mistake(title="t", code="None.orders", why="", remedy="", says=("orders", "the table"))
    assert mistake.faults(place.message(mistake)) == ["does not say 'the table'", "is a AttributeError"]
    assert mistake.faults("orders the table\n" * 4 + "x" * 700) == ["has 768 letters", "has 5 lines"]


def test_the_folder_and_numbers_are_the_same_in_each_run(tmp_path: Path) -> None:
    mistake = Mistake(
        title="t", code="raise ValueError(f'{table.location()} {table.current_snapshot().snapshot_id}')", why="", remedy="", says=()
    )
    said = Place(tmp_path).message(mistake)
    assert said == "ValueError: file:///lake/warehouse/shop/orders 4358162539105481237"
