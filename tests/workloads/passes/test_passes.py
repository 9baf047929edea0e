"""Passes and iterations: are they what the engine makes of them, do the parts sum, and are the sizes the formulas'?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sim.simulation import simulate
from topologies import ring, switch
from topologies.checks import WeftError
from workloads.job import Job
from workloads.models.language import LanguageModel, Matrix, language_model
from workloads.passes.device import device, stack
from workloads.passes.iteration import WAITING, Passes, iterate
from workloads.passes.layers import Layers
from workloads.passes.memory import (
    _others,
    check_fits,
    layer_activations,
    layer_parameters,
    memory_of,
    outer_parameters,
    rank_parameters,
)
from workloads.passes.orders import ORDERS, Pass, Slot
from workloads.passes.plan import Plan
from workloads.passes.tape import Begun, Tape, Work
from workloads.passes.timeline import timeline

SMALL = LanguageModel(name="small", layers=8, hidden=1024, heads=16, vocabulary=32000, sequence=1024)


def plan(model: LanguageModel = SMALL, **changes: Any) -> Plan:
    given = {"stack": stack("megatron"), "device": replace(device("a100"), spread=0.0), "efficiency": 0.7,
             "half_efficiency": 0.7, "sequence": model.sequence, "sequence_parallel": False}
    return Plan(model=model, **{**given, **changes})


def free(kind: str, size_bytes: float, group: str) -> int:
    return 0


def by_bytes(rate_Bps: float) -> Callable[[str, float, str], int]:
    return lambda kind, size_bytes, group: round(size_bytes / rate_Bps * 1e12)


# --- against the engine

END = 1
"""Picoseconds that the end of an operation of a job takes in the engine."""


def test_a_pipeline_is_that_of_the_engine_to_the_picosecond() -> None:
    """Passes as computations, messages over the links of a ring of four stages that nothing shares."""
    p, m, size = 4, 8, 1 << 20
    fabric = ring(p, bandwidth="100GB/s", latency="1us")
    sent = simulate(_message(fabric, size), chunks=1).time_ps
    for name in ("gpipe", "1f1b", "zb-h1", "zb-h2"):
        order = ORDERS[name]
        each = {"F": 10**9, "B": 11 * 10**8, "W": 9 * 10**8, "BW": 2 * 10**9}

        def duration(rank: int, slot: Slot, each: dict[str, int] = each) -> int:
            return each[slot[0].kind] + rank * 1001

        found = timeline(name, p, 1, m, duration, lambda src, dst: sent)
        job = Job(fabric)
        done: dict[tuple[str, int, int], int] = {}
        last: list[list[int]] = [[] for _ in range(p)]
        at = [0] * p
        slots = order.slots(p, 1, m)
        while any(at[r] < len(slots[r]) for r in range(p)):
            for r in range(p):
                while at[r] < len(slots[r]):
                    (one,) = slots[r][at[r]]
                    needs = ("B", r + 1) if r < p - 1 else ("own F", r)
                    needs = {"F": ("F", r - 1), "W": ("own", r)}.get(one.kind, needs)
                    after = [] if one.kind == "F" and r == 0 else [done.get((*needs, one.batch), -1)]
                    if -1 in after:
                        break
                    after += last[r]
                    now = job.compute(f"{one} {r}", duration(r, slots[r][at[r]]) - END, npus=[r], after=after)
                    last[r] = [now]
                    at[r] += 1
                    done["own F" if one.kind == "F" else "own", r, one.batch] = now
                    to = r + 1 if one.kind == "F" else r - 1
                    if one.kind != "W" and 0 <= to < p:
                        arrived = job.send(f"from {one} {r}", size, [r], [to], after=[now], detached=True)
                        done[one.kind[0], r, one.batch] = arrived
        assert simulate(job, chunks=1).time_ps == found.end, name


def _message(fabric: Any, size: int) -> Job:
    job = Job(fabric)
    job.send("one", size, [0], [1])
    return job


def test_a_tape_is_what_streams_of_the_engine_do() -> None:
    """Kernels and collectives in order on two streams, with the waits of the tape."""
    times = {"a": 5_000_000, "b": 9_000_000, "c": 2_000_000}
    tape = Tape(lambda kind, size, group: times[kind])
    job, compute, network = Job(switch(2)), list[int](), list[int]()

    def work(seconds: float, after: list[int]) -> None:
        tape.work("x", seconds)
        compute.append(job.compute("x", round(seconds * 1e12) - END, after=[*compute[-1:], *after]))

    def begin(kind: str) -> Any:
        network.append(job.compute(kind, times[kind] - END, stream="network", after=[*compute[-1:], *network[-1:]]))
        return tape.begin(kind, 1.0, "tp")

    work(3e-6, [])
    first = begin("a")
    work(4e-6, [])
    second = begin("b")
    tape.wait(first)
    work(1e-6, network[:1])
    tape.wait(second)
    third = begin("c")
    work(1e-6, network[1:2])
    tape.wait(third)
    assert simulate(job).time_ps == tape.now
    assert tape.compute == 9_000_000 and tape.now == tape.compute + sum(tape.exposed.values())


# --- iterations


@pytest.mark.table
@pytest.mark.parametrize("changes", [
    {}, {"tp": 4}, {"tp": 4, "sequence_parallel": True}, {"pp": 4, "microbatches": 8},
    {"pp": 2, "vp": 2, "schedule": "interleaved", "microbatches": 4}, {"dp": 4, "zero": 1}, {"dp": 4, "zero": 3},
    {"pp": 4, "microbatches": 8, "schedule": "zb-h1"}, {"pp": 4, "microbatches": 8, "dp": 2, "data_overlap": False},
    {"pp": 4, "vp": 2, "schedule": "dualpipe", "microbatches": 16}, {"cp": 4}, {"send_overlap": True, "pp": 2},
])
def test_the_parts_of_every_rank_sum_to_the_iteration(changes: dict[str, Any]) -> None:
    found = iterate(plan(**changes), by_bytes(1e11))
    assert {sum(one.values()) for one in found.parts} == {found.time_ps}
    assert all(time > 0 for one in found.parts for time in one.values())
    assert found.time_ps == iterate(plan(**changes), by_bytes(1e11)).time_ps


def test_one_rank_computes_and_updates() -> None:
    """FLOP over the rate, bytes over the memory's, and kernels: nothing waits, and MFU is below the efficiency."""
    found = iterate(plan(), free)
    assert set(found.parts[0]) == {"compute", "optimizer"}
    assert 0.2 < found.figures["mfu"] < 0.7
    assert found.figures["tokens_per_s"] == pytest.approx(1024 / found.time_s)


def test_a_job_is_as_fast_as_the_slowest_of_its_devices() -> None:
    """The expected largest of n normal values: 1.42 standard deviations of 8, 2.6 of 128."""
    whole = device("a100")
    for ranks, deviations in ((1, 0.0), (8, 1.42), (128, 2.6)):
        one = plan(dp=ranks, zero=3, device=whole, microbatches=1)
        assert one.pace == pytest.approx(1 + whole.spread * deviations, abs=0.002 * whole.spread * 10)
        alone = iterate(replace(one, device=replace(whole, spread=0.0)), free).parts[0]["compute"]
        assert iterate(one, free).parts[0]["compute"] == pytest.approx(alone * one.pace, rel=1e-6)


def test_gradients_are_copied_before_fsdp_reduces_them() -> None:
    """So many bytes of each parameter of the blocks, beside nothing else; kernels that are not fused move more."""
    one = plan(dp=4, zero=3, stack=stack("fms"))
    bare = replace(one, stack=replace(one.stack, copies=0.0))
    traffic = 8 * SMALL.layer_parameters(0) * 8 / one.device.hbm * one.pace * one.microbatches
    assert iterate(one, free).time_s - iterate(bare, free).time_s == pytest.approx(traffic, rel=1e-6)
    eager = replace(bare, stack=replace(bare.stack, eager=2.8))
    assert iterate(eager, free).time_ps == iterate(replace(bare, compiled=False), free).time_ps
    assert iterate(eager, free).time_ps > iterate(bare, free).time_ps


def test_copies_add_up_the_shards_of_their_gradients() -> None:
    """HSDP: a shard of each block behind its reduce-scatter; of a loop of layers all shards behind the pass."""
    sizes: dict[str, list[float]] = {}

    def times(kind: str, size_bytes: float, group: str) -> int:
        sizes.setdefault(f"{group} {kind}", []).append(size_bytes)
        return 10**6

    one = plan(dp=8, replicas=2, zero=3)
    hidden = iterate(one, times)
    assert one.groups["dp"] == (4, 1) and one.groups["rep"] == (2, 4)
    assert sizes["rep all-reduce"] == [size / 4 for size in sizes["dp reduce-scatter"]]
    sizes.clear()
    behind = iterate(replace(one, stack=stack("maxtext")), times)
    shards = 8 * SMALL.layer_parameters(0) + SMALL.embedding_parameters
    assert sizes["rep all-reduce"] == [pytest.approx(shards)]  # 4 bytes each over 4 ranks
    assert 0 < hidden.parts[0]["rep all-reduce"] < behind.parts[0]["rep all-reduce"] == 10**6
    with pytest.raises(WeftError, match="replicas=3 are copies of ZeRO's shards"):
        replace(one, replicas=3)


def test_equal_stages_have_the_bubble_of_the_schedule() -> None:
    """Almost without embedding and head, of eight layers on four stages: the last one waits (p-1) (F + B)."""
    bare = replace(SMALL, vocabulary=1, positions=False)
    for name, v, share in (("1f1b", 1, 1), ("interleaved", 2, 2)):
        one = plan(bare, pp=4, vp=v, schedule=name, microbatches=16)
        found = iterate(one, free)
        middle = found.parts[1]["compute"]
        assert found.parts[3][WAITING] == pytest.approx(3 / 16 / share * middle, rel=0.05)


def test_full_recomputation_is_a_forward_pass_more() -> None:
    times = by_bytes(2e11)
    none, full = (iterate(plan(tp=4, recompute=how), times) for how in ("none", "full"))
    tape = Tape(times)
    layers = Layers(plan(tp=4))
    for layer in range(8):
        layers.forward(tape, layer)
    assert full.time_ps - none.time_ps == pytest.approx(tape.now, abs=100)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_bytes_of_tensor_parallelism(sequence_parallel: bool) -> None:
    """With A of 2 T h: 4 all-reduces a layer, or 4 reduce-scatters and 2 + 4 all-gathers."""
    layers = Layers(plan(tp=4, sequence_parallel=sequence_parallel))
    counts = Counter[str]()

    class Counting(Tape):
        def begin(self, kind: str, size_bytes: float, group: str) -> Any:
            counts[kind] += round(size_bytes / (1024 * 1024 * 2))
            return super().begin(kind, size_bytes, group)

    tape = Counting(free)
    layers.forward(tape, 0)
    forward = dict(counts)
    counts.clear()
    layers.backward(tape, 0, "BW")
    if sequence_parallel:
        assert forward == {"all-gather": 2, "reduce-scatter": 2}
        assert counts == {"all-gather": 4, "reduce-scatter": 2}
    else:
        assert forward == counts == {"all-reduce": 2}


def test_tokens_travel_before_the_first_matrix_and_only_those_of_the_rank() -> None:
    """T / tp tokens x K copies x h x 2 B, twice forward and twice backward."""
    mixture = replace(SMALL, experts=8, active=2, expert_width=4096, gated=True)
    sizes: list[tuple[str, float]] = []
    kinds: list[str] = []

    class Written(Tape):
        def begin(self, kind: str, size_bytes: float, group: str) -> Any:
            if group == "ep":
                sizes.append((kind, size_bytes))
                kinds.append("all-to-all")
            return super().begin(kind, size_bytes, group)

        def work(self, kind: str, seconds: float) -> None:
            kinds.append("work")
            super().work(kind, seconds)

    one = plan(mixture, tp=4, dp=8, ep=8, sequence_parallel=True)
    layers = Layers(one)
    layers.forward(Written(free), 0)
    assert sizes == [("all-to-all", 1024 / 4 * 2 * 1024 * 2)] * 2
    where = [at for at, kind in enumerate(kinds) if kind == "all-to-all"]
    assert kinds[where[0]:where[1]].count("work") == 3  # fc1, activation, fc2
    layers.backward(Written(free), 0, "BW")
    assert len(sizes) == 4


MIXED = replace(SMALL, experts=8, active=2, expert_width=512)


def test_windows_spare_the_attention_of_their_layers_alone() -> None:
    """Of a window of w of s tokens, w (1 - w / 2s) keys a query in place of s / 2: forward, and 2.5 times backward."""
    window, sequence, rates = 100, 1024, device("a100").attention(2)
    spared = sequence / 2 - window * (1 - window / (2 * sequence))
    flops = 2 * spared * SMALL.heads * 2 * SMALL.head_size * sequence
    once = (flops / rates[0] + 2.5 * flops / rates[1]) / stack("megatron").attention_share
    for windows, layers in (((window,), 8), ((window, 0), 4), ((0, 0, window), 2), ((sequence, 0), 0)):
        for pp in (1, 2, 4):
            times = [sum(part["forward"] + part["backward"] for part in _kernels(plan(one, pp=pp)))
                     for one in (SMALL, replace(SMALL, windows=windows))]
            assert (times[0] - times[1]) / 1e12 == pytest.approx(once * layers, rel=1e-6)


def _kernels(one: Plan) -> list[Counter[str]]:
    """Time of kernels of one microbatch by kind, of each stage."""
    found = iterate(one, free)
    parts = []
    for stage in range(one.stages):
        kinds = Counter[str]()
        for kind in ("F", "BW"):
            for work in found.scripts[stage, kind]:
                if isinstance(work, Work):
                    kinds[work.kind] += work.end - work.begin
        parts.append(kinds)
    return parts


def test_ranks_that_share_an_expert_gather_its_tokens() -> None:
    """Of T / tp tokens of each of them, twice; parts of an expert take as long as a whole one of fewer tokens."""
    sent = Counter[tuple[str, str]]()

    def count(kind: str, size_bytes: float, group: str) -> int:
        sent[group, kind] += round(size_bytes)
        return 1

    whole, parts = (plan(MIXED, tp=2, dp=2, ep=2, etp=etp, sequence_parallel=True) for etp in (1, 2))
    assert (parts.groups["ep"], parts.groups["etp"]) == ((2, 2), (2, 1)) and parts.groups["edp"].size == 1
    iterate(parts, count)
    array = 1024 // 2 * 2 * 1024 * 2 * 2  # tokens of a rank, both ranks, width, copies, bytes
    assert sent["etp", "all-gather"] == sent["etp", "reduce-scatter"] == array
    assert memory_of(parts)["weights"] < memory_of(whole)["weights"]
    gathered = [sum(_kernels(one)[0].values()) for one in (whole, parts)]
    assert gathered[1] == pytest.approx(gathered[0], rel=0.02)


@pytest.mark.parametrize(("etp", "why"), [(3, "etp=3 does not divide the width 512"), (8, "ep=2 x etp=8 must divide")])
def test_parts_of_experts_that_cannot_be(etp: int, why: str) -> None:
    with pytest.raises(WeftError, match=why):
        plan(MIXED, tp=2, dp=2, ep=2, etp=etp)


def test_a_pipeline_message_is_the_share_of_a_tensor_rank() -> None:
    sizes = set()

    def times(kind: str, size_bytes: float, group: str) -> int:
        if group == "pp":
            sizes.add(size_bytes)
        return 1

    iterate(plan(pp=2, tp=4, microbatches=2), times)
    assert sizes == {1024 * 1024 * 2 / 4}


def test_attention_has_no_weight_gradient() -> None:
    layers = Layers(plan(attention="flash2"))
    whole, given, weights = Tape(free), Tape(free), Tape(free)
    for tape, kind in ((whole, "BW"), (given, "B"), (weights, "W")):
        layers.backward(tape, 0, kind)
    matrices = SMALL.matrices(0)
    assert whole.now == given.now + weights.now
    assert weights.now == pytest.approx(1e12 * sum(map(layers.product_s, matrices)), abs=len(matrices))


def test_blocks_of_fsdp_hide_behind_computation() -> None:
    """With short collectives what is exposed is the first gather and the last scatter, however many layers."""
    exposed = []
    for layers in (4, 8):
        one = plan(replace(SMALL, layers=layers, tied=True), dp=8, zero=3, micro_batch=8)
        parts = iterate(one, by_bytes(4e11)).parts[0]
        exposed.append(parts["dp all-gather"] + parts["dp reduce-scatter"])
    assert exposed[0] == exposed[1]
    slow = [iterate(plan(replace(SMALL, layers=layers), dp=8, zero=3), by_bytes(1e9)).parts[0] for layers in (4, 8)]
    more = sum(slow[1][kind] - slow[0][kind] for kind in ("dp all-gather", "dp reduce-scatter"))
    unit = SMALL.layer_parameters(0)
    sent = 4 * unit * (2 + 2 + 4) / 1e9 * 1e12
    compute = slow[1]["compute"] - slow[0]["compute"]
    assert more == pytest.approx(sent - compute, rel=0.05)


def test_gathers_behind_gradients_are_exposed() -> None:
    """BACKWARD_POST: all that travels, but for what the work of embedding hides: the first block and its gradients."""
    one, rate = plan(dp=4, zero=3, microbatches=3), 6e12
    late = replace(one, stack=replace(one.stack, late=True))
    found = iterate(late, by_bytes(rate)).parts[0]
    layer, outer = SMALL.layer_parameters(0), SMALL.embedding_parameters
    sent = 2 * outer + 7 * 2 * layer + 4 * (7 * layer + outer)
    exposed = found["dp all-gather"] + found["dp reduce-scatter"]
    assert exposed == pytest.approx(3 * sent / rate * 1e12, rel=1e-5)
    assert iterate(one, by_bytes(rate)).time_ps < iterate(late, by_bytes(rate)).time_ps


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_nothing_is_beside_the_collectives_of_plain_tensor_parallelism(recompute: str) -> None:
    """Every collective of a backward pass is waited for at once, and gradients of the input are added at full width."""
    one = plan(tp=4, sequence_parallel=True, recompute=recompute, stack=stack("torchtitan"))
    tape, beside = Tape(by_bytes(1e11)), Tape(by_bytes(1e11))
    Layers(one).backward(tape, 0, "BW")
    Layers(replace(one, stack=replace(one.stack, dtensor=False))).backward(beside, 0, "BW")
    sent = [item.end - item.begin for item in tape.script if isinstance(item, Begun)]
    assert sum(tape.exposed.values()) == sum(sent)
    of_tensors = [item for item in tape.script if isinstance(item, Begun) and item.group == "tp"]
    assert len(of_tensors) == {"none": 4, "selective": 6, "full": 7}[recompute]  # the last product is not again
    assert sum(beside.exposed.values()) < sum(sent)


def test_no_weight_is_gathered_before_the_norm_of_all_gradients() -> None:
    """The update and the gather follow the slowest stage: they are the same on all ranks."""
    found = iterate(plan(pp=4, dp=8, zero=1, microbatches=8, data_overlap=False), by_bytes(1e10))
    assert len({one["dp all-gather"] for one in found.parts}) == 1
    assert len({one["optimizer"] for one in found.parts}) == 1
    first = 2 * SMALL.layer_parameters(0) + SMALL.embedding_parameters
    assert found.parts[0]["dp reduce-scatter"] == round(1e12 * 4 * first / 1e10)


# --- memory


@pytest.mark.parametrize(("name", "shape", "none", "kept"), [
    ("gpt-22b", {"tp": 8, "micro_batch": 4}, 59.25, 9.5625),
    ("gpt-1t", {"tp": 8, "pp": 64, "microbatches": 512}, 131.25, 26.5625),
    ("gpt-175b", {"tp": 8, "pp": 8, "vp": 3, "schedule": "interleaved", "microbatches": 64}, 66.84375, 12.35),
])
def test_activations_are_those_of_figure_1(name: str, shape: dict[str, Any], none: float, kept: float) -> None:
    """GiB on the first stage: nothing recomputed without sequence parallelism, and both with it (arXiv 2205.05198)."""
    model = language_model(name)
    for expected, more in ((none, {}), (kept, {"sequence_parallel": True, "recompute": "selective"})):
        one = plan(model, attention="unfused", **shape, **more)
        found = memory_of(one)["activations"]
        if one.pp == 1:  # figure 1 has no head
            found -= 4 * one.tokens * (model.hidden + model.vocabulary) / one.tp
        assert found / 2**30 == pytest.approx(expected, rel=1e-3)


def test_states_take_18_bytes_a_parameter() -> None:
    model = language_model("gpt-22b")
    one = plan(model, tp=8)
    parts = memory_of(one)
    states = sum(parts[name] for name in ("weights", "gradients", "optimizer"))
    layers = sum(model.layer_parameters(layer) for layer in range(48)) / 8
    assert 18 * layers / 2**30 == pytest.approx(45.5625, rel=1e-3)
    assert states == 18 * (layers + model.embedding_parameters / 8)


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    model = language_model("gpt-22b")
    check_fits(plan(model, tp=8, recompute="full"))
    with pytest.raises(WeftError, match=r"gpt-22b needs .* on rank 0 .*activations .*--recompute full would fit"):
        check_fits(plan(model, tp=8, micro_batch=4, attention="unfused"))
    with pytest.raises(WeftError, match="choose more tp or pp"):
        check_fits(plan(model))


def test_recomputation_keeps_less() -> None:
    none, core, products, full = (layer_activations(plan(attention="unfused", recompute=how), 0)
                                  for how in ("none", "core", "products", "full"))
    assert none > core > full and none > products > full


# --- plans


@pytest.mark.parametrize(("changes", "why"), [
    ({"tp": 3}, "tp=3 does not divide the 16 heads"), ({"cp": 3}, "cp=3 does not divide"),
    ({"ep": 2}, "ep=2: small has no experts"), ({"vp": 2}, "schedule 1f1b has vp=1, not 2: choose interleaved"),
    ({"pp": 16}, "pp=16 x vp=1 are 16 stages; small has 8 layers"),
    ({"schedule": "2f2b"}, "2f2b"),
])
def test_plans_that_cannot_be_are_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(WeftError, match=why):
        plan(**changes)


def test_stages_have_whole_layers_and_the_ends_fewer() -> None:
    model = language_model("llama-3-405b")
    counts = [len(one) for one in plan(model, pp=16, vp=8, schedule="interleaved", microbatches=16).layers]
    assert counts == [0, *[1] * 126, 0]
    assert [len(one) for one in plan(model, pp=8).layers] == [15, *[16] * 6, 15]


# --- the limits themselves


@pytest.mark.parametrize("spare", [0, -1])
def test_a_device_of_exactly_what_is_needed_is_enough(spare: int) -> None:
    """Of the plan, and of each change that is said to fit."""
    one = plan(tp=2)
    need = round(sum(memory_of(one).values()))
    room = replace(one.device, memory_bytes=need + spare)
    if spare:
        with pytest.raises(WeftError, match="small needs"):
            check_fits(replace(one, device=room))
    else:
        check_fits(replace(one, device=room))
    other = round(sum(memory_of(replace(one, zero=1, dp=2)).values()))
    with pytest.raises(WeftError) as said:
        check_fits(replace(one, dp=2, device=replace(one.device, memory_bytes=other + spare)))
    changes = str(said.value).partition("a100 has ")[2].partition("; ")[2].removesuffix(" would fit").split(" or ")
    assert ("--zero 1" in changes) == (not spare) and "--recompute full --zero 1" in changes


@pytest.mark.parametrize(
    ("pp", "zero", "told"), [(1, 0, True), (1, 1, True), (1, 2, True), (1, 3, False), (2, 1, False)]
)
def test_shards_of_all_are_a_change_of_what_has_no_pipeline_and_no_shards_yet(pp: int, zero: int, told: bool) -> None:
    assert ("--zero 3 --recompute full" in [text for text, _ in _others(plan(pp=pp, zero=zero, dp=4))]) == told


@pytest.mark.parametrize(("recompute", "kept"), [("none", 5 * 16 * 1024), ("core", 0)])
def test_scores_are_kept_where_the_core_of_attention_is_not_recomputed(recompute: str, kept: int) -> None:
    """Bytes a token beyond those that do not depend on the sequence: 5 a s of arXiv 2205.05198, equation 1."""
    one = plan(attention="unfused", recompute=recompute)
    assert layer_activations(one, 0) == one.tokens * (SMALL.hidden * (10 if SMALL.biases else 8) + kept + sum((
        2 * (SMALL.query_width + SMALL.kv_width + SMALL.attended_width),
        SMALL.feed_forward * (6 if SMALL.gated else 4),
    )))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("tp", [1, 4])
def test_embedding_and_head_are_divided_among_tensor_ranks(tied: bool, tp: int) -> None:
    model = replace(SMALL, tied=tied)
    own = model.embedding_parameters + (0 if tied else model.vocabulary * model.hidden)
    assert outer_parameters(plan(model, tp=tp), 0) == own / tp
    ends = [outer_parameters(plan(model, tp=tp, pp=4), stage) * tp for stage in range(4)]
    assert ends == [model.embedding_parameters, 0, 0, model.vocabulary * model.hidden]


@pytest.mark.parametrize(("order", "kinds"), [
    ({"pp": 4}, "F BW"), ({"pp": 2, "vp": 2, "schedule": "interleaved"}, "F BW"),
    ({"pp": 2, "schedule": "zb-h1"}, "F B W"),
])
def test_shards_of_a_pipeline_are_gathered_in_every_pass(order: dict[str, Any], kinds: str) -> None:
    """Weights in what needs them, gradients where there are some; on a slow network gathers follow each other."""
    one = plan(dp=4, zero=3, microbatches=4, **order)
    found = iterate(one, lambda kind, size_bytes, group: round(size_bytes * 1e6) if group == "dp" else 0)
    assert {kind for _, kind in found.scripts} == set(kinds.split())
    for (stage, kind), script in found.scripts.items():
        blocks = [layer_parameters(one, layer).dense for layer in one.layers[stage]]
        outer = {0: SMALL.embedding_parameters, one.stages - 1: SMALL.vocabulary * SMALL.hidden}.get(stage, 0)
        sent = {name: [step for step in script if isinstance(step, Begun) and step.kind == name and step.group == "dp"]
                for name in ("all-gather", "reduce-scatter")}
        gathers = [*[outer] * bool(outer), *blocks] if kind == "F" else blocks if kind != "W" else []
        scatters = [*blocks, *[outer] * bool(outer)] if kind in ("BW", "W") else []
        assert [step.size_bytes for step in sent["all-gather"]] == [2 * size for size in gathers]
        assert [step.size_bytes for step in sent["reduce-scatter"]] == [4 * size for size in scatters]
        if kind == "F":
            assert sent["all-gather"][-1].end == sum(round(2 * size * 1e6) for size in gathers)
    quick = [iterate(replace(one, zero=zero), free).time_ps for zero in (1, 3)]
    assert quick[0] == quick[1]  # passes differ in what they send alone


# --- rates


def test_a_product_that_moves_much_is_as_slow_as_measured() -> None:
    """Azure/AI-benchmarking-guide 8fd0c6e, A100: 257 TFLOP/s at most, 158 of 802816 x 192 x 768, 251 of another."""
    fast = replace(plan(), half_efficiency=257 / 312)
    for (m, n, k), measured in {(802_816, 192, 768): 158, (6144, 12288, 12288): 251}.items():
        layers = Layers(replace(fast, sequence=m))
        assert 2 * m * n * k / layers.product_s(Matrix("some", k, n)) / 1e12 == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize(("tp", "name", "moved"), [
    (1, "fc1", 5 * 96 + 5 * 40), (1, "fc2", 5 * 96 + 5 * 40),
    (4, "fc1", (3 / 4 + 2) * 96 + 5 * 40 / 4), (4, "fc2", 5 * 96 / 4 + (3 / 4 + 2) * 40),
])
def test_casts_are_of_what_a_rank_has(tp: int, name: str, moved: float) -> None:
    """Read in half precision and written in fp8 where a tensor is whole, then transposed where it is gathered."""
    one = plan(tp=tp, sequence_parallel=True, precision="fp8", device=replace(device("h100"), spread=0.0))
    row = name == "fc2"
    rows, columns = (96 / tp, 40) if row else (96, 40 / tp)
    seconds = 3 * Layers(one).cast_s(1024, rows, columns, row, 96 * 40 / tp, tp) * one.device.hbm
    assert seconds == pytest.approx(moved * 1024 + 2 * 96 * 40 / tp)


def test_what_is_computed_again_ends_before_the_last_product() -> None:
    whole = plan(recompute="full", stack=replace(stack("fms"), stops=False))
    ended = replace(whole, stack=replace(whole.stack, stops=True))
    last = Layers(whole).product_s(SMALL.feed_forward_of(0)[1])
    times = []
    for one in (whole, ended):
        tape = Tape(free)
        Layers(one).again(tape, 0)
        times.append(tape.now)
    assert times[0] - times[1] == pytest.approx(1e12 * last, rel=1e-6)
    flops = 2 * SMALL.feed_forward * SMALL.hidden * SMALL.layers / 3
    assert (whole.figures(1.0)["hfu"] - ended.figures(1.0)["hfu"]) / whole.figures(1.0)["mfu"] == pytest.approx(
        flops / SMALL.token_flops(1024, passes=1))


def test_attention_to_the_tokens_of_others_is_slower() -> None:
    """Of cp equal parts the first is a rank's own."""
    bare = replace(device("a100"), kernel_s=0.0)
    one = plan(cp=4, device=bare, stack=replace(stack("torchtitan"), context_share=0.5))
    alone = replace(one, stack=replace(one.stack, context_share=1.0))
    assert Layers(one).core_s(0) == pytest.approx(Layers(alone).core_s(0) * (1 + 3 * 2) / 4)


@pytest.mark.parametrize(("tp", "cp", "kv_heads", "copies"), [(1, 2, 16, 1), (1, 8, 4, 2), (2, 8, 4, 4), (2, 4, 2, 4)])
def test_whole_sequences_of_a_share_of_the_heads(tp: int, cp: int, kv_heads: int, copies: int) -> None:
    """Q, K and V to the ranks that have their heads, and what attention leaves back; as much backward. Keys and values
    of fewer heads than ranks go to several."""
    model = replace(SMALL, kv_heads=kv_heads)
    one = plan(model, tp=tp, cp=cp, context="ulysses")
    tokens, h, size = 1024 // cp, 1024, 64
    inside = tokens * (h + 2 * kv_heads * copies * size) * 2 / tp
    for kind, sent in (("F", [inside, tokens * h * 2 / tp]), ("BW", [tokens * h * 2 / tp, inside])):
        script = Passes(one, lambda *_: 1).tape(0, kind).script
        calls = [item for item in script if isinstance(item, Begun) and item.group == "cp"]
        assert [item.size_bytes for item in calls] == sent * model.layers
        assert {item.kind for item in calls} == {"all-to-all"}
    ring = replace(one, context="ring", stack=replace(one.stack, context_share=1.0))
    assert Layers(one).core_s(0) == pytest.approx(Layers(ring).core_s(0))
    with pytest.raises(WeftError, match="--context ulysses: tp=1 x cp=32 do not divide the 16 heads of small"):
        plan(cp=32, context="ulysses")


def test_of_two_passes_one_of_which_sends_products_have_fewer_multiprocessors() -> None:
    """What they share is kept for all of both; nothing where none sends."""
    for tp in (1, 4):
        made = Passes(plan(tp=tp, pp=4, vp=2, schedule="dualpipe", microbatches=16), lambda *_: 1000)
        both = Pass("F", 0, 0), Pass("BW", 1, 0)
        alone = [made.slot_parts(0, (one,)) for one in both]
        longer = 132 / 112 if tp > 1 else 1
        assert made.slot_parts(0, both)["compute"] == round(longer * sum(part["compute"] for part in alone))


def test_two_copies_of_a_stage_add_up_their_gradients() -> None:
    one = plan(pp=4, vp=2, schedule="dualpipe", microbatches=16, dp=2, zero=1)
    sent = [(kind, size) for kind, size, group in Passes(one, free).tail() if group == "copies"]
    most = max(rank_parameters(one, rank).all for rank in range(4))
    assert sent == [("all-reduce", 4 * most / 2)]
    assert not [1 for *_, group in Passes(plan(pp=4, microbatches=16), free).tail() if group == "copies"]
