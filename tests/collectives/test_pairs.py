"""All-to-all with sizes per pair: exact elements, one bound for all, and FAST near it."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from collectives import build
from collectives.core.pairs import demand_of, elements, proportions
from collectives.core.proof import ScheduleError
from collectives.fast import permutations_of
from collectives.registry import algorithms_for
from sim import simulate
from sim.analytic.bounds import bounds
from sim.cli import main
from sim.cli.bound import bound_rows
from tests import fabrics
from tests.oracles import all_cuts, arrays
from topologies import WeftError, egress_Bps, from_spec, ingress_Bps
from topologies.flows.prices import demand_prices
from topologies.flows.programs import concurrent_flow

TAKES = algorithms_for("all-to-all", pairs=True)


def demanded(seed: int, p: int) -> np.ndarray:
    """What is sent: zeros, equal, and far apart."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 1 + 10 ** rng.integers(0, 6, (p, p)))


def test_who_takes_them():
    assert TAKES == ("pairwise", "direct", "concurrent-flow", "fast")


@pytest.mark.parametrize("p", [1, 2, 5, 32])
@pytest.mark.parametrize("size", [0, 4, 31, 2**20 + 3])
@pytest.mark.parametrize("pairs", [None, "zipf:1.2", "moe:0.7:3"])
@pytest.mark.parametrize("element", [1, 3, 4])
def test_elements_are_all_there_and_next_to_their_shares(p, size, pairs, element):
    found = elements(pairs, p, size, element)
    total = -(-size * p // element)
    if pairs is None:  # blocks of a collective, each filled up
        assert (found == -(-size // (p * element))).all()
        return
    share = proportions(pairs, p)
    assert found.sum() == total and found.min() >= 0
    assert np.abs(found - share / share.sum() * total).max() < 1 + 1e-9 * total


def test_skews():
    moe, zipf = proportions("moe:1.2", 16), proportions("zipf:1.2", 16)
    assert (moe == moe[0]).all() and len(set(moe[0])) == 16 and len(set(zipf.ravel().tolist())) == 256
    assert sorted(moe[0]) == pytest.approx(sorted(k**-1.2 for k in range(1, 17)))
    assert (proportions("moe:1.2:1", 16) != moe).any() and (proportions("zipf:0", 4) == 1).all()


@pytest.mark.parametrize("seed", range(200))
def test_totals_are_phases_of_one_box_to_one_box(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    totals = demanded(seed, n)
    np.fill_diagonal(totals, 0)
    phases = permutations_of(totals)
    assert sum(length for length, _ in phases) == max(totals.sum(axis=0).max(), totals.sum(axis=1).max())
    assert len(phases) <= (n - 1) ** 2 + 1 + (n < 2)
    done = np.zeros_like(totals)
    for length, to in phases:
        assert length > 0 and sorted(to.tolist()) == list(range(n))
        done[np.arange(n), to] += length
    assert (done >= totals).all()


@pytest.mark.table
@pytest.mark.parametrize("name", TAKES)
@pytest.mark.parametrize(
    "spec", ["switch:1", "switch:2", "ring:5", "torus:3x2", "dgx-a100:2", "leaf-spine:3x2x2", "SW(3)_SW(4)"]
)
@pytest.mark.parametrize("seed", range(3))
def test_on_arrays(name, spec, seed):
    topology = from_spec(spec)
    given = demanded(seed, topology.n_npus)
    built = build(name, "all-to-all", topology, 10_001, pairs=given, element_bytes=1)
    assert built.proof == "proved" and built.block_bytes == 1
    arrays.run(built.pattern, seed)
    wanted = elements(given, topology.n_npus, 10_001, 1)
    np.fill_diagonal(wanted, 0)
    assert (demand_of(built.kind, topology.n_npus) == wanted).all()
    t = built.pattern.transfers()
    if name != "fast":
        sent = np.zeros_like(wanted)
        np.add.at(sent, (t.src, t.dst), t.blocks)
        assert (sent == wanted).all()
    result = simulate(built, chunks=3, check=True)
    assert result.time_ps >= bounds(result.lowered).best_ps


@pytest.mark.table
@pytest.mark.parametrize("name", TAKES)
@pytest.mark.parametrize("spec", ["dgx-a100:2", "leaf-spine:3x2x2"])
@pytest.mark.parametrize("given", [1e-12, 0.02])
@pytest.mark.parametrize("seed", range(3))
def test_few_pairs_send_nearly_all(name, spec, given, seed):
    topology, rng = from_spec(spec), np.random.default_rng(seed)
    n = topology.n_npus
    pairs = given + (np.arange(n)[:, None] == rng.permutation(n))
    built = build(name, "all-to-all", topology, "64MiB", pairs=pairs)
    arrays.run(built.pattern, seed)


@pytest.mark.parametrize("name", TAKES)
@pytest.mark.parametrize("pairs", [None, "zipf:1"])
@pytest.mark.parametrize(("spec", "size", "element"), [
    ("ring:2", 1, 4), ("dgx-a100:2", 100, 4), ("ring:5", 3, 7), ("ring:7", 2**16, 3),
])
def test_sizes_that_no_number_of_elements_divides(name, pairs, spec, size, element):
    built = build(name, "all-to-all", from_spec(spec), size, pairs=pairs, element_bytes=element)
    assert simulate(built, check=True).time_ps > 0


HARD = {  # of positions a in boxes of eight, and chance
    "inside of boxes": lambda rng: rng.random((32, 32)) * np.kron(29 * np.eye(4) + 1, np.ones((8, 8))),
    "far apart": lambda rng: rng.lognormal(0, 2, (32, 32)),
    "one source": lambda rng: np.where(np.arange(32) == rng.integers(32), 20, 1)[:, None] * np.ones((32, 32)),
    "few": lambda rng: (rng.random((32, 32)) < 0.03) + 1e-12,
} | {f"{skew}:{exponent}": lambda rng, skew=skew, exponent=exponent: proportions(
    f"{skew}:{exponent}:{rng.integers(10**6)}", 32) for skew in ("moe", "zipf") for exponent in (0.5, 0.9, 1.5, 3)}


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", HARD)
def test_the_faster_of_two_is_near_the_bound_between_boxes(name, seed):
    pairs, found = HARD[name](np.random.default_rng(seed)), []
    for algorithm in ("fast", "concurrent-flow"):
        built = build(algorithm, "all-to-all", from_spec("dgx-h100:4"), "64MiB", pairs=pairs)
        runs = [simulate(built, chunks=chunks) for chunks in (8, 64)]
        found += [run.time_ps / bounds(run.lowered).cut_ps for run in runs]
    assert 1 <= min(found) < 1.1


@pytest.mark.parametrize("seed", range(40))
def test_the_bound_is_a_cut_and_below_the_program(seed):
    topology = fabrics.random_fabric(31_000 + seed)
    n = topology.n_npus
    demand = demanded(seed, n)
    np.fill_diagonal(demand, 0)
    if n < 2 or not demand.any():
        return
    bound = demand_prices(topology, demand).s_per_block_byte
    flow = concurrent_flow(topology, tuple(map(tuple, demand.tolist())))
    assert 1 - 1e-4 < float(bound) * flow.rate_Bps <= 1 + 1e-6  # as of every program that is small
    if topology.n_nodes <= 10:
        sides = all_cuts.every_set(topology.n_nodes)
        npus = sides[:, :n]
        crossing = np.einsum("si,ij,sj->s", npus, demand, ~npus)
        all_ = (crossing / np.maximum(all_cuts.rate_out(topology, sides), 1e-9)).max()
        assert all_ * flow.rate_Bps <= 1 + 1e-6
    egress, ingress = egress_Bps(topology), ingress_Bps(topology)
    assert float(bound) >= max((demand.sum(1) / egress).max(), (demand.sum(0) / ingress).max()) * (1 - 1e-12)


def test_equal_sizes_have_the_bound_of_equal_blocks():
    for spec in ("dgx-h100:2", "torus:4x4", "fat-tree:4", "ring:5"):
        topology = from_spec(spec)
        row, equal = (bound_rows(topology, "all-to-all", pairs=pairs)[0] for pairs in ("zipf:0", None))
        assert row["algbw_GBps"] == pytest.approx(equal["algbw_GBps"], rel=1e-6), spec


def test_a_row_that_declares_too_little_is_no_proof():
    built = build("direct", "all-to-all", from_spec("ring:4"), "1KiB", pairs="zipf:1")
    t = built.pattern.transfers()
    from dataclasses import replace
    with pytest.raises(ScheduleError, match="declares 1 elements and its blocks have"):
        replace(built.pattern, emit=lambda ranks: t._replace(blocks=np.ones_like(t.blocks)))
    with pytest.raises(WeftError, match="not those of another size"):
        replace(built, size_bytes=2048)


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_fast_is_within_a_tenth_of_the_bound(first):
    """100 skewed matrices on four boxes of eight."""
    topology = from_spec("dgx-h100:4")
    for seed in range(first, first + 20):
        exponent = 0.1 + seed / 100
        pairs = f"{('moe', 'zipf')[seed % 2]}:{exponent}:{seed}"
        schedule = build("fast", "all-to-all", topology, "64MiB", pairs=pairs)
        result = simulate(schedule, chunks=8)
        assert result.time_ps <= 1.1 * bounds(result.lowered).cut_ps, (seed, exponent)


def test_one_hot_pair_between_boxes():
    """All of it from one GPU to one of another box: eight NICs, not one."""
    topology, hot = from_spec("dgx-h100:2"), np.zeros((16, 16))
    hot[3, 12] = 1
    times = {}
    for name in TAKES:
        result = simulate(build(name, "all-to-all", topology, "64MiB", pairs=hot), chunks=8)
        times[name] = result.time_ps / bounds(result.lowered).cut_ps
    assert times["direct"] > 7 and times["fast"] < 1.3


@pytest.mark.parametrize(("given", "says"), [
    (("--pairs", "none.csv"), "none.csv"),
    (("--pairs", "moe"), "write moe:1.2 or moe:1.2:7"),
    (("--pairs", "zipf:x"), "write zipf:1.2 or zipf:1.2:7, an exponent from 0 to 16"),
    (("--pairs", "moe:-1"), "an exponent from 0 to 16"),
    (("--pairs", "moe:1:-1"), "an exponent from 0 to 16"),
    (("--pairs", "zipf:1", "--collective", "all-reduce"), "all-reduce has one size for all: leave out pairs 'zipf:1'"),
    (("--pairs", "zipf:1", "--algorithms", "bruck"), "bruck all-to-all option 'pairs' is unknown"),
])
def test_refused(given, says, capsys):
    code = main(["compare", "--topology", "ring:4", "--collective", "all-to-all", "--size", "1K", *given])
    assert code == 2 and says in capsys.readouterr().err


@pytest.mark.parametrize(("text", "says"), [
    ("", "is empty"),
    ("# nothing\n", "has 0 rows of no numbers: give 2 rows of 2"),
    ("1,2\n", "has 1 rows of 2 numbers"),
    ("1,2\n3\n", "has 2 rows of 1 or 2 numbers"),
    ("1,x\n1,2\n", "could not convert string to float: 'x'"),
    ("1,-2\n1,2\n", "from rank 0 to rank 1 goes -2.0"),
    ("1,nan\n1,2\n", "from rank 0 to rank 1 goes nan"),
    ("0,0\n0,0\n", "nothing is sent"),
])
def test_refused_files(tmp_path, text, says):
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    with pytest.raises(WeftError, match=says.replace("(", r"\(")):
        proportions(str(path), 2)


def test_every_command(tmp_path, capsys):
    def weft(*words):
        assert main([*words]) == 0
        return capsys.readouterr().out

    path = tmp_path / "pairs.csv"
    path.write_text("# from, to\n0,3,1\n1,0,3\n3,1,0\n")
    same = ("--topology", "ring:3", "--collective", "all-to-all", "--pairs", str(path))
    table = weft("compare", *same, "--size", "3MB")
    assert all(name in table for name in TAKES) and "bruck" not in table
    assert "algbw" in weft("bound", *same, "--program")
    for command in ("validate", "trace", "schedule"):
        more = {"trace": ("--perfetto", str(tmp_path / "t.json"))}.get(command, ())
        weft(command, *same, "--size", "3MB", "--algorithms", "fast", *more)


def test_three_boxes_by_hand():
    """Rows and columns sum to 4 of the unit: whoever sends 3 first has 1 left."""
    for order in permutations(range(3)):
        totals = np.array([[0, 3, 1], [1, 0, 3], [3, 1, 0]])[np.ix_(order, order)]
        assert [length for length, _ in permutations_of(totals)] == [3, 1]
