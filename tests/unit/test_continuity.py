from __future__ import annotations

import pytest

from jobledger import errors
from jobledger.client import continuity
from jobledger.model import event


def advance(rule: continuity.Continuity, *positions: int) -> None:
    for position in positions:
        rule.advance(event.Position(position))


def rule(start: int, *, contiguous: bool = True) -> continuity.Continuity:
    return continuity.Continuity(start=event.Position(start), contiguous=contiguous)


def test_a_stream_goes_on_at_the_position_after_its_start() -> None:
    advance(rule(41), 42, 43, 44)


def test_a_stream_that_begins_further_on_is_broken() -> None:
    with pytest.raises(errors.StreamBroken, match="from position 41 to 43, not to 42"):
        advance(rule(41), 43)


def test_a_position_left_out_breaks_a_stream() -> None:
    stream = rule(0)
    advance(stream, 1, 2)

    with pytest.raises(errors.StreamBroken) as broken:
        advance(stream, 4)

    assert (broken.value.after, broken.value.got) == (2, 4)


def test_a_position_repeated_breaks_a_stream() -> None:
    stream = rule(0)
    advance(stream, 1, 2)

    with pytest.raises(errors.StreamBroken):
        advance(stream, 2)


def test_a_snapshot_has_gaps_and_what_follows_it_has_none() -> None:
    stream = rule(10)
    advance(stream, 2, 7, 11, 12)

    with pytest.raises(errors.StreamBroken):
        advance(stream, 14)


def test_after_a_snapshot_the_stream_goes_on_above_its_head() -> None:
    stream = rule(10)
    advance(stream, 2, 7)

    with pytest.raises(errors.StreamBroken, match="from position 10 to 12"):
        advance(stream, 12)


def test_a_filtered_stream_may_leave_out_but_not_go_back() -> None:
    stream = rule(3, contiguous=False)
    advance(stream, 5, 9)

    with pytest.raises(errors.StreamBroken):
        advance(stream, 8)
