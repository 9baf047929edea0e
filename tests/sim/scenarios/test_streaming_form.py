"""The closed form of arrays that stream along trees, against the simulation and against the one of pool streaming."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import build, in_network, ring
from sim import simulate
from sim.analytic.closed_form import streaming_ps
from sim.cli import main
from sim.scenarios.pool_streaming import PoolStreaming, time_ps
from sim.study.validation import validate
from topologies import from_spec, leaf_spine, switch

CHUNK = 4096


@settings(max_examples=25)
@given(
    st.sampled_from(["switch:2", "switch:5", "fat-tree:4", "leaf-spine:3x2x2", "leaf-spine:1x4x1"]), st.integers(1, 40),
    st.sampled_from(["cut-through", "store-and-forward"]), st.sampled_from(["all-reduce", "broadcast", "reduce"]),
)
def test_whole_chunks_take_what_the_form_says(spec, chunks, forwarding, kind):
    result = simulate(build("in-network", kind, from_spec(spec), chunks * CHUNK), chunk=CHUNK, forwarding=forwarding)
    assert streaming_ps(result.lowered.program) == result.time_ps


def test_the_slowest_link_sets_the_pace():
    fabric = leaf_spine(4, 3, 1, bandwidth=["400Gb/s", "100Gb/s"])
    result = simulate(in_network.all_reduce(fabric, 100 * CHUNK), chunk=CHUNK)
    assert streaming_ps(result.lowered.program) == result.time_ps
    assert result.time_ps > 99 * CHUNK * 8 * 10  # ps of a bit at 100 Gb/s


@settings(max_examples=25)
@given(
    st.sampled_from(["switch:3", "fat-tree:4", "leaf-spine:3x2x2", "ring:4"]), st.integers(1, 60), st.integers(1, 40)
)
def test_windows_turn_in_whole_round_trips(spec, chunks, slots):
    schedule = build("in-network", "all-reduce", from_spec(spec), chunks * CHUNK, form="push", slots=slots)
    result = simulate(schedule, chunk=CHUNK)
    assert streaming_ps(result.lowered.program) == result.time_ps


@pytest.mark.parametrize("slots", [1, 3, 57, 58, 64])
def test_a_window_is_that_of_a_slot_pool(slots):
    job = PoolStreaming(size_bytes=1024 * (6 * slots + slots // 2), slots=slots)
    model = {"chunk": job.payload_bytes, "packet_header": job.header_bytes, "forwarding": "store-and-forward"}
    result = simulate(job.schedule(), **model)
    assert streaming_ps(result.lowered.program) == job.closed_form_ps() == result.time_ps == time_ps(job)


def test_none_where_transfers_wait_for_others_or_share_links():
    whole = simulate(ring.all_reduce(switch(4), "1MiB"))
    shared = simulate(in_network.all_reduce(switch(4), "1MiB", form="pull"))
    assert streaming_ps(whole.lowered.program) is None
    assert streaming_ps(shared.lowered.program) is None
    assert streaming_ps(simulate(ring.all_reduce(switch(1), "1MiB")).lowered.program) is None


def test_validate_prints_it(capsys):
    result = simulate(in_network.all_reduce(switch(4), 64 * CHUNK), chunk=CHUNK)
    assert validate(result).closed_form_ps == result.time_ps
    assert main(["validate", "--topology", "switch:4", "--algorithm", "in-network", "-b", "1M"]) == 0
    said = capsys.readouterr().out
    assert "RTT + q max(RTT, slots service) + r service" in said
