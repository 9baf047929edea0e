from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import build
from collectives.core.schedule import schedule
from collectives.core.sends import SendList
from collectives.reconfigured import Unswitchable, fitted, in_matchings, of_steps, part, step_pairs, switched
from sim import simulate
from sim.program.model import make_model
from topologies import WeftError, from_spec, torus
from topologies.optics import joining, layouts

WHOLE = make_model(chunks=1, forwarding="store-and-forward")


def own(schedule):
    """Each step on its own circuits, equal ones once."""
    pairs = step_pairs(schedule)
    fabrics = {some: joining(schedule.topology, some) for some in pairs}
    return [fabrics[some] for some in pairs]


@pytest.mark.parametrize("options", ["", ",per-port", ",paid", ",circuits=rings", ",duplex"])
def test_steps_on_their_own_circuits_take_what_they_take_alone_and_the_delays(options):
    fabric = from_spec(f"ocs:8x2,delay=1us{options}", "50GB/s", "100ns", 0)
    schedule = build("recursive-doubling", "all-reduce", fabric, "1MiB", "bandwidth")
    fabrics = own(schedule)
    result = simulate(switched(schedule, fabrics), model=WHOLE, check=True)
    alone = sum(
        simulate(part(schedule, of_steps(schedule, at, at), one), model=WHOLE).time_ps
        for at, one in enumerate(fabrics)
    )
    changes = 4 + (options in (",paid", ",circuits=rings"))
    assert result.time_ps == alone + changes * 10**6
    assert result.schedule.proof == "proved" and result.row()["algorithm"] == "recursive-doubling"
    assert result.why().parts["reconfiguration"] == changes * 10**6


@pytest.mark.parametrize("kind", ["all-reduce", "all-gather"])
@pytest.mark.parametrize("name", ["swing", "ring", "bruck", "recursive-doubling"])
def test_one_set_of_circuits_is_the_schedule_on_them(kind, name):
    fabric = from_spec("ocs:8x2")
    if name == "bruck" and kind == "all-reduce":
        return
    schedule = build(name, kind, fabric, "64KiB")
    assert switched(schedule, [fabric] * len(step_pairs(schedule))) is schedule
    (_, other, *_) = layouts(fabric).values()
    moved = switched(schedule, [other] * len(step_pairs(schedule)))
    assert simulate(moved, check=True).time_ps == simulate(build(name, kind, other, "64KiB")).time_ps


@given(st.integers(2, 9), st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_matchings_of_an_all_to_all(n, ports):
    schedule = in_matchings(build("direct", "all-to-all", from_spec(f"ocs:{n}x{ports}"), "4KiB"))
    pairs = step_pairs(schedule)
    assert len(pairs) == n - 1 and sum(map(len, pairs)) == n * (n - 1)
    for some in pairs:
        assert len({src for src, _ in some}) == len({dst for _, dst in some}) == len(some)
    simulate(switched(schedule, own(schedule)), check=True)


@given(st.integers(3, 9), st.integers(2, 5), st.booleans())
@settings(max_examples=20, deadline=None)
def test_on_duplex_ports_a_step_has_both_ways_of_its_pairs(n, ports, unequal):
    """Of cycles, where ports are even; also of unequal messages, and of those that are none."""
    sizes = {"pairs": "zipf:1.2:7"} if unequal else {}
    schedule = in_matchings(build("direct", "all-to-all", from_spec(f"ocs:{n}x{ports},duplex"), "4KiB", **sizes))
    for some in step_pairs(schedule):
        assert some == {(dst, src) for src, dst in some}
        assert max(Counter(src for src, _ in some).values()) <= 2 - ports % 2
    simulate(switched(schedule, own(schedule)), check=True)


@given(st.integers(3, 9), st.integers(1, 4), st.booleans(), st.sampled_from(["direct", "recursive-multiplying"]))
@settings(max_examples=20, deadline=None)
def test_steps_for_which_there_are_too_few_ports_are_in_matchings(n, ports, duplex, name):
    fabric = from_spec(f"ocs:{n}x{ports + duplex}" + ",duplex" * duplex)
    schedule = build(name, "all-reduce", fabric, "4MiB", *["bandwidth"] * (name != "direct"))
    before, after = schedule.pattern.transfers(), fitted(schedule).pattern.transfers()
    for same in ("src", "dst", "slot", "blocks", "dep_src", "dep_slot"):
        assert np.array_equal(getattr(before, same), getattr(after, same))
    pairs = step_pairs(fitted(schedule))
    fits = all(joining(fabric, some) for some in step_pairs(schedule))
    assert (fitted(schedule) is schedule) == fits and all(joining(fabric, some) for some in pairs)
    if name == "direct" and not fits:
        assert pairs[: len(pairs) // 2] == pairs[: len(pairs) // 2 - 1 : -1]  # circuits in the middle stay
        assert pairs[: len(pairs) // 2] == step_pairs(in_matchings(build(name, "reduce-scatter", fabric, "4KiB")))
    simulate(switched(fitted(schedule), own(fitted(schedule))), check=True)


@given(st.integers(3, 9), st.integers(2, 3), st.sampled_from(["pairwise", "fast"]), st.booleans())
@settings(max_examples=20, deadline=None)
def test_what_only_waits_its_turn_gets_turns_with_both_ways_of_its_pairs(n, ports, name, unequal):
    """Each transfer waits for all that its source sent and received in its last turn, and for nothing else."""
    fabric, sizes = from_spec(f"ocs:{n}x{ports},duplex"), {"pairs": "moe:1.2:3"} if unequal else {}
    schedule = build(name, "all-to-all", fabric, "9KiB", **sizes)
    turns = fitted(schedule)
    t, pairs = turns.pattern.transfers(), step_pairs(turns)
    if name == "pairwise":
        assert pairs == step_pairs(in_matchings(build("direct", "all-to-all", fabric, "9KiB", **sizes)))
    assert all(some == {(dst, src) for src, dst in some} and joining(fabric, some) for some in pairs)
    at = {(int(src), int(slot)): row for row, (src, slot) in enumerate(zip(t.src, t.slot, strict=True))}
    for row in np.flatnonzero(t.src != t.dst):
        waits = slice(t.dep_ptr[row], t.dep_ptr[row + 1])
        mine = [one for one in range(t.src.size)
                if t.src[row] in (t.src[one], t.dst[one]) and t.step[one] < t.step[row] and t.src[one] != t.dst[one]]
        latest = max((int(t.step[one]) for one in mine), default=-1)
        asked = {at[one] for one in zip(t.dep_src[waits].tolist(), t.dep_slot[waits].tolist(), strict=True)}
        assert asked == {one for one in mine if t.step[one] == latest}
    one_way = build(name, "all-to-all", from_spec(f"ocs:{n}x{ports}"), "9KiB")
    assert fitted(one_way) is one_way
    simulate(switched(turns, own(turns)), check=True)


@pytest.mark.parametrize(("name", "kind"), [
    ("bruck", "all-to-all"), ("bine", "all-to-all"), ("ring", "all-gather"), ("swing", "all-reduce"),
    ("tacos", "all-gather"), ("parameter-server", "all-reduce"),
])
def test_what_waits_for_data_or_fits_the_ports_keeps_its_steps(name, kind):
    schedule = build(name, kind, from_spec("ocs:6x2,duplex"), "64KiB")
    assert in_matchings(schedule) is schedule and fitted(schedule) is schedule


def test_a_wide_step_whose_transfers_wait_for_each_other_stays():
    fabric, sends = from_spec("ocs:4x1"), SendList()
    first = sends.add(0, 1, [0], step=0)
    sends.add(1, 2, [0], step=0, after=[first])
    sends.add(0, 3, [0], step=0)
    one = schedule(sends.pattern(fabric, "broadcast", "star", 1), "4KiB")
    assert joining(fabric, step_pairs(one)[0]) is None and fitted(one) is one


def test_circuits_fit_the_ports():
    fabric = from_spec("ocs:8x3")
    two = joining(fabric, {(v, (v + by) % 8) for v in range(8) for by in (1, 2)})
    one = joining(fabric, {(v, (v + 1) % 8) for v in range(8)})
    assert two.n_links == 16 and np.all(two.bandwidth_Bps == fabric.optics.rate_Bps)
    assert one.n_links == 8 and np.all(one.bandwidth_Bps == 3 * fabric.optics.rate_Bps)
    assert joining(fabric, {(0, v) for v in range(1, 5)}) is None
    single = from_spec("ocs:8x3,single")
    assert np.all(joining(single, {(0, 1)}).bandwidth_Bps == single.optics.rate_Bps)
    assert joining(from_spec("ocs:8x2,duplex"), {(0, 1), (1, 2), (3, 1)}) is None


def test_what_cannot_be_switched_is_named():
    fabric = from_spec("ocs:4x2")
    schedule = build("ring", "all-reduce", fabric, "1KiB")
    apart = joining(fabric, {(0, 1), (1, 0)})
    with pytest.raises(WeftError, match="no route"):
        switched(schedule, [apart, *[fabric] * (len(step_pairs(schedule)) - 1)])
    units = build("parameter-server", "all-reduce", torus((4,)), "1KiB")
    assert issubclass(Unswitchable, WeftError) and units.pattern.circuits is None
