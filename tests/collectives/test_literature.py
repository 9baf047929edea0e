"""Bine, Bruck, PAT, recursive multiplying and Trivance send what their papers say, and are proved on odd shapes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from collectives.bine import negabinary
from collectives.core.collective import collective
from collectives.core.schedule import Schedule
from collectives.recursive_multiplying import factors
from collectives.registry import algorithm, build
from sim.simulation import simulate
from topologies import Topology, WeftError
from topologies.registry import from_spec

GOLDEN = Path(__file__).parents[3] / "shared" / "reference" / "new_algorithms_golden.json"
Sent = list[list[tuple[int, int, list[int]]]]


def sent(schedule: Schedule) -> Sent:
    """Source, destination and blocks of every message, by step."""
    t = schedule.pattern.emit(np.arange(schedule.pattern.p))
    steps: dict[int, list[tuple[int, int, list[int]]]] = {}
    for source, destination, step, slot in zip(*(one.tolist() for one in (t.src, t.dst, t.step, t.slot)), strict=True):
        blocks = sorted(schedule.pattern.blocks_of(source, slot))
        steps.setdefault(step, []).append((source, destination, blocks))
    return [sorted(steps[step]) for step in sorted(steps)]


def to_rank_0(name: str, p: int, **options: object) -> list[tuple[int, list[int]]]:
    """Who sends what to rank 0 in an all-gather, in order."""
    steps = sent(build(name, "all-gather", from_spec(f"ring:{p}"), "1MiB", **options))
    return [(source, blocks) for step in steps for source, destination, blocks in step if destination == 0]


@pytest.mark.parametrize(("name", "p", "messages"), [
    ("bine", 8, [(3, [3]), (7, [4, 7]), (1, [1, 2, 5, 6])]),
    ("bine", 16, [(11, [11]), (3, [3, 8]), (15, [4, 7, 12, 15]), (1, [1, 2, 5, 6, 9, 10, 13, 14])]),
    ("pat", 8, [(4, [4]), (2, [2, 6]), (1, [1, 3, 5, 7])]),
    ("pat", 6, [(4, [4]), (2, [2]), (1, [1, 3, 5])]),
    ("bruck", 8, [(1, [1]), (2, [2, 3]), (4, [4, 5, 6, 7])]),
    ("trivance", 9, [(3, [3]), (6, [6]), (1, [1, 4, 7]), (8, [2, 5, 8])]),
])
def test_what_rank_0_gathers(name: str, p: int, messages: list[tuple[int, list[int]]]) -> None:
    """arXiv 2508.17311, 2506.20252 and 2602.17254; Bruck and others, 1997."""
    assert to_rank_0(name, p) == messages


@pytest.mark.parametrize(("aggregation", "order"), [
    (1, [8, 12, 14, 15, 13, 10, 11, 9, 4, 6, 7, 5, 2, 3, 1]), (2, [4, 6, 7, 5, 2, 3, 1]), (4, [2, 3, 1]),
])
def test_pat_walks_its_trees_depth_first(aggregation: int, order: list[int]) -> None:
    """NCCL's order, and log2 A + p/A - 1 messages of at most A blocks."""
    messages = to_rank_0("pat", 16, aggregation=aggregation)
    assert [min(blocks) for _, blocks in messages][aggregation.bit_length() - 1:] == order
    assert len(messages) == aggregation.bit_length() - 1 + 16 // aggregation - 1
    assert max(len(blocks) for _, blocks in messages) == aggregation


def test_bine_trees_flip_the_digits_of_base_minus_two() -> None:
    assert negabinary(8).tolist() == [0, 1, 6, 7, 4, 5, 2, 3]  # 2 = 4 - 2, 3 = 4 - 2 + 1, 4 = 100, ...
    tree = sent(build("bine", "broadcast", from_spec("ring:8"), "1MiB", "latency"))
    assert [[(a, b) for a, b, _ in step] for step in tree] == [
        [(0, 3)], [(0, 7), (3, 4)], [(0, 1), (3, 2), (4, 5), (7, 6)],
    ]
    scatter = sent(build("bine", "scatter", from_spec("ring:8"), "1MiB"))
    assert sent(build("bine", "broadcast", from_spec("ring:8"), "1MiB", "bandwidth"))[:3] == scatter
    assert scatter == [
        [(0, 1, [1, 2, 5, 6])], [(0, 7, [4, 7]), (1, 2, [2, 5])],
        [(0, 3, [3]), (1, 6, [6]), (2, 5, [5]), (7, 4, [4])],
    ]


@pytest.mark.parametrize("p", [2, 6, 8, 22, 32])
def test_blocks_of_a_bine_all_to_all_go_as_those_of_the_reduce_scatter_to_the_same_ranks(p: int) -> None:
    ring = from_spec(f"ring:{p}")
    at = {(origin, to): origin for origin in range(p) for to in range(p)}
    found = sent(build("bine", "all-to-all", ring, "1MiB"))
    for step, scattered in zip(found, sent(build("bine", "reduce-scatter", ring, "1MiB")), strict=True):
        gone = {pair: other for one, other, to in scattered for pair in at if at[pair] == one and pair[1] in to}
        assert {divmod(block, p): other for _, other, blocks in step for block in blocks} == gone
        at |= gone
    assert all(rank == to for (_, to), rank in at.items())


def test_bruck_moves_blocks_by_a_digit_of_their_distance() -> None:
    steps = sent(build("bruck", "all-to-all", from_spec("ring:8"), "1MiB"))
    assert [[blocks for source, _, blocks in step if source == 0] for step in steps] == [
        [[1, 3, 5, 7]], [[2, 6, 7 * 8 + 2, 7 * 8 + 6]], [[4, 5 * 8 + 4, 6 * 8 + 4, 7 * 8 + 4]],
    ]


@pytest.mark.parametrize(("p", "radix"), [(7, 2), (13, 3), (20, 4), (27, 3), (31, 8), (64, 8), (9, 20)])
def test_bruck_sends_few_messages_and_each_block_as_often_as_its_distance_has_digits(p: int, radix: int) -> None:
    messages = [one for step in sent(build("bruck", "all-to-all", from_spec(f"ring:{p}"), "1MiB", radix=radix))
                for one in step if one[0] == 0]
    digits = [np.base_repr(distance, min(radix, 36)) for distance in range(1, p)]
    assert len(messages) == len({(len(one), one[0]) for one in digits} | {
        (at, one[-at]) for one in digits for at in range(1, len(one) + 1) if one[-at] != "0"
    })
    assert sum(len(blocks) for *_, blocks in messages) == sum(len(one) - one.count("0") for one in digits)


@pytest.mark.parametrize(("number", "most", "found"), [
    (1, 4, []), (8, 4, [4, 2]), (24, 4, [3, 4, 2]), (15, 8, [5, 3]), (36, 6, [6, 6]), (14, 3, [7, 2]), (97, 8, [97]),
])
def test_factors_are_few(number: int, most: int, found: list[int]) -> None:
    assert list(factors(number, most)) == found


@pytest.mark.parametrize(("p", "radix", "steps"), [
    (8, 2, 3), (8, 8, 1), (15, 8, 2), (14, 3, 5), (27, 3, 3), (11, 4, 4),
])
def test_recursive_multiplying_has_a_step_for_each_factor(p: int, radix: int, steps: int) -> None:
    """And two more where ranks fold: 14 = 12 + 2 of 4 x 3, 11 = 9 + 2."""
    found = sent(build("recursive-multiplying", "all-reduce", from_spec(f"ring:{p}"), "1KiB", "latency", radix=radix))
    assert len(found) == steps


@pytest.mark.parametrize("spec", ["torus:9x9", "torus:27x3", "torus:9x3x3"])
def test_trivance_is_the_fastest_of_small_ones_on_tori_of_powers_of_three(spec: str) -> None:
    topology = from_spec(spec)
    times = {name: simulate(build(name, "all-reduce", topology, "16KiB")).time_ps
             for name in ("trivance", "swing", "recursive-doubling", "recursive-multiplying", "bucket")}
    assert min(times, key=times.__getitem__) == "trivance"


SHAPES = ("ring:1", "ring:2", "ring:3", "ring:7", "ring:10", "ring:27", "torus:9x3", "torus:4x6", "torus:5x7",
          "mesh:2x3x4", "switch:11", "fat-tree:4", "dgx-a100:2", "torus:1x6", "ring:100")
CHOICES = {"radix": (2, 3, 5), "aggregation": (None, 2), "root": (0, -1), "peers": ("aligned", "shifted")}


@pytest.mark.table
@pytest.mark.parametrize("spec", SHAPES)
@pytest.mark.parametrize("name", ["bine", "bruck", "pat", "recursive-multiplying", "trivance"])
def test_all_forms_and_options_are_proved_on_any_shape(name: str, spec: str) -> None:
    """Building proves; what is refused says which numbers of ranks there are."""
    topology, one = from_spec(spec), algorithm(name)
    for kind in one.functions:
        option = "root" if collective(kind).rooted else next(iter(one.options), "element_bytes")
        for form in one.forms_of(kind) or (None,):
            for value in CHOICES.get(option, (4,)):
                value = topology.n_npus - 1 if value == -1 else value
                options = {option: value}
                if is_refused(name, kind, form, topology, value):
                    with pytest.raises(WeftError, match=r"odd number|powers of t"):
                        build(name, kind, topology, "64KiB", form, **options)
                else:
                    assert simulate(build(name, kind, topology, "64KiB", form, **options)).time_ps >= 0


def is_refused(name: str, kind: str, form: str | None, topology: Topology, value: int | None) -> bool:
    """Blocks of an odd number of ranks by Bine, whole vectors on no powers of three by Trivance, few by PAT."""
    p = topology.n_npus
    if name == "bine":
        return form == "bandwidth" and not collective(kind).rooted and p % 2 == 1 < p
    if name == "trivance":
        return form == "latency" and not set(topology.shape) <= {1, 3, 9, 27}
    return name == "pat" and value is not None and (p < 2 * value or p & (p - 1) != 0)


@pytest.mark.skipif(not GOLDEN.exists(), reason="vectors beside the repository, which tests do not need")
@pytest.mark.parametrize("p", ["6", "8", "16"])
def test_golden_vectors(p: str) -> None:
    golden, ring = json.loads(GOLDEN.read_text()), from_spec(f"ring:{p}")
    for name in ("bine", "pat", "bruck"):
        if p in golden[f"{name}_all_gather"]:
            right = [sorted((a, b, sorted(c)) for a, b, c in step) for step in golden[f"{name}_all_gather"][p]]
            assert sent(build(name, "all-gather", ring, "1MiB")) == right
    if p in golden["bine_scatter_root0"]:
        right = [sorted((a, b, sorted(c)) for a, b, c in step) for step in golden["bine_scatter_root0"][p]]
        assert sent(build("bine", "scatter", ring, "1MiB")) == right
