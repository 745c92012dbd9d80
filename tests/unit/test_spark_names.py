"""What is given for a table's name in Spark's functions; no session is needed."""

from __future__ import annotations

from typing import Any

import pytest

from icelock.errors import PolicyError
from icelock.spark.settings.options import TableName


@pytest.mark.parametrize("parse", [TableName.parse, TableName.parse_any])
@pytest.mark.parametrize(("given", "kind"), [(object(), "object"), (None, "NoneType"), (("lake", "shop", "t"), "tuple")])
def test_what_is_no_text_is_refused_with_an_example(parse: Any, given: object, kind: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse(given)
    assert str(error.value) == f"expected a name, such as 'lake.demo.flights', got a {kind}"
