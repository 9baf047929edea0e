"""GOAL text: what is read becomes the job it says, what is written comes back at the same times."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import Schedule, build
from docs.producers import absent_of
from sim import simulate
from sim.program.model import Model
from sim.result import Result
from tests.places import SHARED
from topologies import Topology, WeftError, from_spec, ring, switch
from topologies.text.schema import Absent
from workloads.formats.goal import open_goal, parse_goal, read_goal
from workloads.formats.schedule_writers import schedule_to_goal

ONE_PIECE = Model(chunks=1)

SCHEDULES = (
    ("ring:5", "ring", "all-reduce"), ("torus:2x4", "swing", "all-reduce"), ("torus:2x2", "bucket", "all-reduce"),
    ("switch:5", "direct", "all-gather"), ("switch:4", "pairwise", "all-to-all"), ("fc:4", "pipelined", "all-reduce"),
    ("switch:7", "tree", "broadcast"), ("switch:6", "double-binary-tree", "all-reduce"),
    ("ring:2", "ring", "all-reduce"), ("ring:1", "ring", "all-reduce"),
)


def run(text: str, topology: Topology) -> Result:
    return simulate(parse_goal(text, topology, "a.goal"), model=ONE_PIECE, symmetry="off")


def ends(result: Result) -> dict[str, int]:
    """End of every operation, by its name, in ps."""
    return {result.job.operations[span.operation].name: span.end_ps for span in result.spans()}


@pytest.fixture(scope="module")
def two() -> Topology:
    """A message of n bytes takes n + 1 ns to arrive."""
    return ring(2, bandwidth="1GB/s", latency="1ns", hop_latency="0s")


def test_operations_take_what_they_say(two: Topology) -> None:
    text = """
    num_ranks 2  /* a comment
    over lines */
    rank 0 {
    a: calc 100
    b: send 50b to 1 tag 7   // another
    b requires a
    c: calc 30 cpu 1
    }
    rank 1 {
    r: recv 50b from 0 tag 7 cpu 0
    d: calc 10
    d requires r
    }
    """
    assert ends(run(text, two)) == {  # a picosecond for each computation, the least latency of any server
        "line 5": 100_001, "line 6": 151_001, "line 8": 30_001, "line 12": 161_002,
    }


def test_an_exchange_whose_receives_wait_for_the_sends_is_no_circle(two: Topology) -> None:
    side = "rank {0} {{\ns: send 9b to {1}\nr: recv 9b from {1}\nr requires s\n}}\n"
    text = "num_ranks 2\n" + side.format(0, 1) + side.format(1, 0)
    assert run(text, two).time_ps == 10_000


def test_messages_of_one_tag_are_taken_in_their_order(two: Topology) -> None:
    text = (
        "num_ranks 2 rank 0 { a: send 5b to 1 b: send 7b to 1 b requires a } "
        "rank 1 { c: recv 5b from 0 d: recv 7b from 0 }"
    )
    assert run(text, two).time_ps == (6 + 8) * 1000
    with pytest.raises(WeftError, match="5 bytes are received of the 7 that line 1 sends"):
        parse_goal(text.replace("c: recv 5b", "c: recv 7b").replace("d: recv 7b", "d: recv 5b")
                   .replace("send 5b to 1 b: send 7b", "send 7b to 1 b: send 7b"), two)


def test_irequires_of_a_send_waits_for_what_the_send_waits_for(two: Topology) -> None:
    text = "num_ranks 2 rank 0 { a: calc 100 b: send 50b to 1 b requires a c: calc 9 cpu 1 c irequires b } " \
        "rank 1 { recv 50b from 0 }"
    assert sorted(span.end_ps for span in run(text, two).spans())[:2] == [100_001, 109_002]


def test_irequires_of_a_calc_waits_for_its_start(two: Topology) -> None:
    """The message crosses while the calc goes on; it waits for what holds the calc back, and for the calc's stream."""
    text = "num_ranks 2 rank 0 { a: calc 100 b: calc 40 c: send 9b to 1 b requires a c irequires b d: calc 5 cpu 2 " \
        "d irequires c } rank 1 { recv 9b from 0 }"
    found = [span.end_ps // 1000 for span in run(text, two).spans()]
    assert sorted(found) == [100, 100, 105, 110, 110, 140]  # a, the start of b, d, the message at both ends, b


def test_what_atlahs_writes(two: Topology, tmp_path: Path) -> None:
    """A NIC of a message is passed over and told, `calc 0` joins, and a size may stand apart from its unit."""
    path = tmp_path / "a.goal"
    path.write_text(
        "num_ranks 2\n\nrank 0 {\nl1: calc 0 cpu 0\nl2: send 9 b to 1 tag 100 cpu 1 nic 3\nl2 requires l1\n}\n"
        "rank 1 {\nl1: recv 9b from 0 tag 100 cpu 1 nic 2\n}\n", encoding="utf-8",
    )
    job, notes = open_goal(path, two)
    assert notes == ["nic of messages is passed over: the topology says which links a rank has"]
    assert simulate(job, model=ONE_PIECE, symmetry="off").time_ps == 10_000


@pytest.mark.parametrize(("row", "word"), [
    (row, word) for row in absent_of("LogGOPSim") for word in row.where.split(", ")
], ids=lambda one: getattr(one, "name", one))
def test_absent_equals_explicit(row: Absent, word: str, two: Topology) -> None:
    plain = ("num_ranks 2\nrank 0 {\na: send 8b to 1\nb: calc 9\n}\nrank 1 {\na: recv 8b from 0\nb: calc 5\n}\n")
    said = re.sub(rf"({word} [^\n]*)", rf"\1 {row.name} {row.value}", plain)
    assert said != plain and ends(run(said, two)) == ends(run(plain, two))


@pytest.mark.parametrize("path", sorted((SHARED / "goal").glob("*.goal")) or [None])
def test_a_real_broadcast_takes_its_rounds(path: Path | None) -> None:
    """Five messages in a row at most, each over two links and a switch, of which bytes take a picosecond or twenty."""
    if path is None:
        return  # the real file is not part of the project
    result = simulate(read_goal(path, switch(32)), model=ONE_PIECE)
    assert len(result.job.operations) == 31
    assert 5 * 500_000 <= result.time_ps < 5 * 500_000 + 1_000


@pytest.mark.parametrize(("spec", "algorithm", "kind"), SCHEDULES)
def test_a_schedule_comes_back_at_its_own_time(spec: str, algorithm: str, kind: str) -> None:
    topology = from_spec(spec)
    schedule = build(algorithm, kind, topology, "48KiB")
    text = schedule_to_goal(schedule)
    job = parse_goal(text, topology)
    alone_ps = simulate(schedule, chunks=1, rank_progress="free").time_ps  # the file has dependencies alone
    assert simulate(job, model=ONE_PIECE, symmetry="off").time_ps == alone_ps


def test_chunks_wait_for_one_another_as_in_the_schedule() -> None:
    schedule = build("tree", "broadcast", from_spec("mesh:4"), "64KiB", form="chain")
    whole, cut = (run(schedule_to_goal(schedule, chunks), schedule.topology).time_ps for chunks in (1, 8))
    assert cut < whole
    assert cut == simulate(schedule, chunks=8).time_ps


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 300), st.integers(1, 7))
def test_every_byte_is_written(size: int, chunks: int) -> None:
    schedule: Schedule = build("ring", "all-reduce", ring(4), size)
    words = schedule_to_goal(schedule, chunks).split()
    sent = sum(int(words[at + 1][:-1]) for at, word in enumerate(words) if word == "send")
    transfers = schedule.pattern.transfers()
    assert sent == int(transfers.blocks.sum()) * schedule.block_bytes


@pytest.mark.parametrize(
    ("spec", "algorithm", "message"),
    [("switch:4", "in-network", "GOAL knows only ranks"), ("torus:2x2", "hierarchical", "GOAL knows only ranks")],
)
def test_what_goal_cannot_say_is_refused(spec: str, algorithm: str, message: str) -> None:
    with pytest.raises(WeftError, match=message):
        schedule_to_goal(build(algorithm, "all-reduce", from_spec(spec), "1KiB"))


GOOD = "num_ranks 2\nrank 0 {\nl1: send 8b to 1 tag 0\n}\nrank 1 {\nl1: recv 8b from 0 tag 0\n}\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("num_ranks 2", "ranks 2", "line 1: 'ranks' stands where 'num_ranks' is expected"),
        ("num_ranks 2", "num_ranks 9", "has 9 ranks, and ring:2 only 2 NPUs"),
        ("num_ranks 2", "num_ranks 0", "the number of ranks is '0'"),
        ("send 8b", "send 8", "line 3: '8': a size in bytes such as 8b is expected"),
        ("send 8b to 1", "send 8b to 5", "line 3: a rank is '5': 0 to 1 is expected"),
        ("tag 0\n}\nrank 1", "color 3\n}\nrank 1", "line 3: '3' after 'color'"),
        ("from 0 tag 0", "from -1 tag 0", "line 6: a receive from any source is not read"),
        ("from 0 tag 0", "from 0 tag -1", "line 6: a receive of any tag is not read"),
        ("from 0 tag 0", "from 0 tag 4", "sends 1 messages of tag 0 to rank 1, which receives 0"),
        ("l1: recv", "l1: get", "line 6: 'get' is no operation"),
        ("rank 1 {", "rank 0 {", "line 5: rank 0 comes twice"),
        ("tag 0\n}\nrank 1", "tag 0\nl1: calc 5\n}\nrank 1", "line 4: label 'l1' comes twice in rank 0"),
        ("tag 0\n}\nrank 1", "tag 0\nl1 requires l9\n}\nrank 1", "line 4: label 'l9' is not defined before"),
        ("tag 0\n}\nrank 1", "tag 0\nl1 requires l1\n}\nrank 1", "line 3: the send waits for itself in a cycle"),
        ("tag 0\n}\n", "tag 0 ?\n}\n", "line 3: '?' is not GOAL"),
        ("8b from 0 tag 0\n}\n", "8b from", "ends after line 6, where a rank is expected"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(WeftError) as caught:
        parse_goal(GOOD.replace(old, new, 1), ring(2), "a.goal")
    assert str(caught.value).startswith("a.goal")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_rank_at_all_is_refused(two: Topology) -> None:
    with pytest.raises(WeftError, match="no rank has operations"):
        parse_goal("num_ranks 2", two)
