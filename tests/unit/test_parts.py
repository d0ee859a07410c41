"""A table in parts, whatever comes, gets lost or shrinks: the last one that was complete holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from jobledger.model import event, job, parts, ranktable
from jobledger.model.signal import Signal
from tests.support import events

NOW = datetime(2023, 10, 13, tzinfo=UTC)
ALONE = 999
"""What the oracle calls the place of a part that names none."""


class Said(msgspec.Struct, frozen=True):
    """One event of a job, by what counts."""

    operator: str = "add"
    place: int | None = 0
    total: int = 2
    status: str = "running"
    time: str = "1700000000"
    listed: int = 1
    count: int = 3

    @property
    def is_part(self) -> bool:
        return self.total > 1 and self.listed < self.count

    @property
    def generation(self) -> object:
        """Parts of one generation agree in it."""
        return self.total, self.status, self.time, self.count

    def signal(self, position: int) -> Signal:
        servers = [f"{position}-{nth}" for nth in range(self.listed)]
        return Signal(
            job_id="j",
            operator=self.operator,
            job_status=self.status,
            time=self.time,
            cm_index="" if self.place is None else str(self.place),
            total=str(self.total),
            hccl_json=events.rank_table(*servers, server_count=self.count),
        )


def recorded(position: int, signal: Signal) -> event.RecordedEvent:
    return event.RecordedEvent(
        position=event.Position(position),
        uuid=UUID(int=position),
        signal=signal,
        detail=None,
        region="r",
        account_id="",
        user_id="",
        recorded_at=NOW,
    )


def evolved(said: Sequence[Said]) -> job.Job | None:
    folded: job.Job | None = None
    for position, each in enumerate(said, 1):
        folded = job.evolve(folded, recorded(position, each.signal(position)))
    return folded


def generations(said: Sequence[Said]) -> list[list[int]]:
    """The life's adds, by position, cut where a whole signal stands or a new generation begins."""
    cut: list[list[int]] = []
    for position, each in enumerate(said, 1):
        if each.operator == "delete":
            cut = []
            continue
        together = [said[at - 1] for at in cut[-1]] if cut else []
        belongs = (
            bool(together)
            and each.is_part
            and all(other.is_part and other.generation == each.generation for other in together)
            and len({place_of(other) for other in [*together, each]} - {ALONE}) == len(together) + 1
        )
        if belongs:
            cut[-1].append(position)
        else:
            cut.append([position])
    return cut


def place_of(said: Said) -> int:
    return said.place if said.place is not None and said.place < said.total else ALONE


def is_table(said: Sequence[Said], generation: Sequence[int]) -> bool:
    first = said[generation[0] - 1]
    places = {place_of(said[at - 1]) for at in generation}
    return not first.is_part or places == set(range(first.total))


anything = st.builds(
    Said,
    operator=st.sampled_from(["add"] * 9 + ["delete"]),
    place=st.sampled_from([0, 0, 1, 1, 2, 3, None]),
    total=st.sampled_from([1, 2, 2, 2, 3]),
    status=st.sampled_from(["running", "running", "failed"]),
    time=st.sampled_from(["1700000000", "1700000000", ""]),
    listed=st.sampled_from([0, 1, 1, 1, 1, 3]),
    count=st.sampled_from([3, 3, 4]),
)


@st.composite
def deliveries(draw: st.DrawFn) -> list[Said]:
    """Tables, each in parts that come in any order, some lost or twice, of fewer and fewer parts."""
    said: list[Said] = []
    for total in draw(st.lists(st.integers(2, 4), min_size=1, max_size=4).map(sorted).map(reversed)):
        places = draw(st.permutations(range(total)))
        kept = draw(st.integers(0, total))
        again = draw(st.lists(st.integers(0, total - 1), max_size=1))
        said += [Said(place=place, total=total, count=5) for place in [*places[:kept], *again]]
    return said


@hypothesis.settings(deadline=None, max_examples=200)
@hypothesis.given(said=st.one_of(deliveries(), st.lists(anything, max_size=12)))
def test_the_last_complete_table_holds_and_the_newest_generation_waits(said: list[Said]) -> None:
    # A delete ends the life; what it left is shown as it was.
    ended = len(said) > 0 and said[-1].operator == "delete"
    lived = said[:-1] if ended else said
    folded = evolved(said)
    cut = generations(lived)

    if not cut:
        assert folded is None or not folded.live
        return
    assert folded is not None
    tables = [each for each in cut if is_table(lived, each)]
    table = tables[-1] if tables else []
    waiting = [] if table == cut[-1] else cut[-1]
    newest = lived[cut[-1][-1] - 1]
    texts = [lived[at - 1].signal(at).hccl_json for at in table]
    digests = [hashlib.sha256(text.encode()).digest() for text in texts]
    expected = digests[0] if len(digests) == 1 else hashlib.sha256(b"".join(digests)).digest()
    assert list(folded.signal_positions) == table + waiting
    assert list(folded.table_positions) == table
    assert folded.hccl_digest == (expected if table else None)
    assert (folded.signal.job_status, folded.signal.total) == (newest.status, str(newest.total))
    assert (folded.arriving is None) == (not newest.is_part)


@pytest.mark.parametrize(
    "other",
    [Said(place=1, total=3), Said(place=1, status="failed"), Said(place=1, time=""), Said(place=1, count=4)],
    ids=["total", "jobStatus", "time", "server_count"],
)
def test_part_of_another_table_begins_a_new_generation(other: Said) -> None:
    folded = evolved([Said(place=0), other])

    assert folded is not None
    assert folded.arriving is not None
    assert (folded.signal_positions, folded.arriving.places) == ((2,), (1,))


def test_generation_is_the_same_after_it_was_kept() -> None:
    folded = evolved([Said(place=1, total=3), Said(place=0, total=3)])

    assert folded is not None
    assert folded.arriving is not None
    assert parts.decode(parts.encode(folded.arriving)) == folded.arriving


def test_parts_that_name_no_place_do_not_pile_up() -> None:
    folded = evolved([Said(place=0), Said(place=1), *[Said(place=None), Said(place=7)] * 50])

    assert folded is not None
    assert folded.signal_positions == (1, 2, 102)


@pytest.mark.parametrize("lost", [0, 1])
def test_table_that_shrank_to_one_whole_signal_replaces_its_parts(lost: int) -> None:
    folded = evolved([*[Said(place=0), Said(place=1)][lost:], Said(total=1, listed=1, count=1)])

    assert folded is not None
    assert folded.table_positions == folded.signal_positions == (3 - lost,)


def test_joined_table_has_every_server_and_says_that_it_is_one() -> None:
    one = '{"status":"complete","server_list":[{"a":1.50},2],"server_count":"3","total":2,"é":1}'
    other = '{"status":"complete","server_list":[{"b":{}}],"server_count":"3","total":2}'

    joined = ranktable.join([one, other])

    assert json.loads(joined) == {
        "status": "complete",
        "server_list": [{"a": 1.5}, 2, {"b": {}}],
        "server_count": "3",
        "total": 1,
        "é": 1,
    }
    assert "1.50" in joined
    assert ranktable.missing_servers_of(joined) is None


def test_text_that_came_whole_is_not_touched() -> None:
    assert ranktable.join([' {"server_list" : []}']) == ' {"server_list" : []}'
    assert ranktable.join([]) == ""


def test_spoiled_part_leaves_the_others_readable() -> None:
    joined = ranktable.join(["{", events.rank_table("10.0.0.1", server_count=2)])

    assert [server.host_ip for server in ranktable.read(joined).servers] == ["10.0.0.1"]
