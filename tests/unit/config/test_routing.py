"""Users' regular expressions take linear time, whatever a record or a topic's name is."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import pytest

from calve.sink_core.config.routing import Condition, Naming, fill_topic, left_out, matching
from calve.sink_core.config.topics import covers

MB = "a" * 1_000_000
SLOW = ("(a+)+$", "(a|aa)+", "(?P<x>(a*)*)b", "(.*)(.*)(.*)(.*)c")
USES: dict[str, Callable[[str, str], object]] = {
    "where": lambda pattern, text: Condition("a", pattern).fulfilled(text),
    "name_from": lambda pattern, text: Naming(0, Condition("a", pattern), None, {"t": "{value}"}, frozenset()).table(
        "t", text
    ),
    "topics_regex": lambda pattern, text: (matching([text], pattern), left_out([text], pattern)),
    "formats": lambda pattern, text: covers(text, (), pattern),
    "names of tables": lambda pattern, text: fill_topic("x.{x}", text, pattern),
}


@pytest.mark.parametrize("pattern", SLOW)
@pytest.mark.parametrize("use", USES)
def test_a_megabyte_is_matched_in_a_second(use: str, pattern: str) -> None:
    begin = process_time()
    assert USES[use](pattern, f"{MB}!") in (False, None, ([], []))
    assert process_time() - begin < 1
