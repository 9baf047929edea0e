"""Are the closed forms those of the Swing paper, and do they agree with counted messages and simulated runs?"""

from __future__ import annotations

from fractions import Fraction

import pytest

from collectives import build
from sim import simulate
from sim.analytic.closed_form import _swing_distance, deficiency
from sim.study.validation import closed_form_ps
from topologies import from_spec

BUTTERFLIES = ("swing", "recursive-doubling", "mirrored-recursive-doubling")


def swing_xi(shape: tuple[int, ...]) -> Fraction:
    """Congestion deficiency of Swing's bandwidth form."""
    found = deficiency("swing", "bandwidth", shape)
    assert found is not None
    return found.bandwidth


@pytest.mark.parametrize(
    ("shape", "xi"),
    [
        ((8, 8), 1.0781), ((64, 64), 1.1843), ((8, 8, 8), 1.0254), ((8,), 1.125), ((16,), 1.4375), ((64,), 2.109),
        ((64, 16), 1.2207), ((16, 64), 1.2207),
    ],
)
def test_swing_xi_is_the_published_and_corrected_value(shape: tuple[int, ...], xi: float) -> None:
    assert float(swing_xi(shape)) == pytest.approx(xi, abs=5e-5 if xi < 2 else 5e-4)


@pytest.mark.parametrize(("n_dims", "limit"), [(2, Fraction(6, 5)), (3, Fraction(28, 27))])
def test_swing_xi_tends_to_its_limit(n_dims: int, limit: Fraction) -> None:
    assert float(limit - swing_xi((2**10,) * n_dims)) == pytest.approx(0, abs=2e-3)
    assert swing_xi((64,) * n_dims) < swing_xi((128,) * n_dims) < limit


@pytest.mark.parametrize("d_min", [4, 8, 16])
@pytest.mark.parametrize("ratio", [1, 2, 4, 16])
@pytest.mark.parametrize("n_dims", [1, 2])
def test_rectangular_xi_counts_the_same_messages(d_min: int, ratio: int, n_dims: int) -> None:
    shape = (d_min * ratio,) + (d_min,) * (n_dims - 1)
    assert rectangular_xi(d_min, d_min * ratio, n_dims) == swing_xi(shape)


def test_equation_3_as_printed_is_too_small() -> None:
    """Its second term for 64x16 predicts 691 Gb/s where 655 are possible and 618 were plotted."""
    printed = swing_xi((16, 16)) + Fraction(2, 6 * 16)
    assert 800 / float(printed) == pytest.approx(691, abs=0.5)
    assert 800 / float(swing_xi((64, 16))) == pytest.approx(655, abs=0.5)


@pytest.mark.parametrize(
    ("algorithm", "loads"),
    [("swing", 21), ("recursive-doubling", 94)],
)
def test_latency_forms_move_what_their_fullest_links_carry(algorithm: str, loads: int) -> None:
    """Bytes over n on the fullest links of 64x64, all steps (swing.md, section 2.1)."""
    factors = deficiency(algorithm, "latency", (64, 64))
    assert factors is not None
    assert factors.bandwidth / 2 == loads
    assert factors.latency == 12


def test_table_2_holds_in_the_limit() -> None:
    """Psi Xi of table 2: 2D x 1.5 for recursive doubling in two dimensions, 1.5 for its mirrored form."""
    single, mirrored = (deficiency(name, "bandwidth", (1024, 1024)) for name in BUTTERFLIES[1:])
    assert single is not None
    assert mirrored is not None
    assert float(single.bandwidth) == pytest.approx(6, rel=2e-3)
    assert float(mirrored.bandwidth) == pytest.approx(1.5, rel=2e-3)


@pytest.mark.table
@pytest.mark.parametrize("size", ["0B", "64KiB", "1MiB", "64MiB"])
@pytest.mark.parametrize(("spec", "algorithm"), [
    ("torus:8x8", "ring"), ("torus:4x4", "ring"), ("ring:5", "ring"), ("ring:16", "ring"),
    ("torus:8x8", "bucket"), ("torus:4x8", "bucket"), ("torus:4x4x4", "bucket"), ("torus:3x5", "bucket"),
])
def test_neighbor_algorithms_take_exactly_their_closed_form(spec: str, algorithm: str, size: str) -> None:
    """Only whole picoseconds and whole elements lie between."""
    schedule = build(algorithm, "all-reduce", from_spec(spec), size)
    result = simulate(schedule, chunks=1)
    predicted = closed_form_ps(result)
    assert predicted is not None
    steps = result.estimate_ps // 400_000 + 1
    padding = schedule.block_bytes * schedule.pattern.n_blocks - schedule.size_bytes
    assert 0 <= result.time_ps - predicted <= steps + padding * 2 * 20


@pytest.mark.table
@pytest.mark.parametrize("spec", ["torus:8x8", "torus:16x8", "torus:16x4", "torus:4x4x4", "ring:16"])
@pytest.mark.parametrize("form", ["latency", "bandwidth"])
@pytest.mark.parametrize("algorithm", BUTTERFLIES)
def test_loads_are_those_counted_on_the_links_of_the_schedule(spec: str, algorithm: str, form: str) -> None:
    """The estimate adds up the fullest links of all steps; at 1 GiB latencies are less than a thousandth."""
    result = simulate(build(algorithm, "all-reduce", from_spec(spec), "1GiB", form), engine="analytic", tie="split")
    predicted = closed_form_ps(result)
    assert predicted is not None
    assert result.time_ps == pytest.approx(predicted, rel=1e-3)


@pytest.mark.parametrize(("algorithm", "shape"), [
    ("swing", (2, 4)), ("swing", (6, 6)), ("ring", (4, 4, 4)), ("direct", (8, 8)), ("ring", ()), ("bucket", (1, 2)),
])
def test_no_closed_form_where_none_is_known(algorithm: str, shape: tuple[int, ...]) -> None:
    assert deficiency(algorithm, "bandwidth", shape) is None


@pytest.mark.parametrize("spec", ["switch:8", "mesh:4x4", "torus:1"])
def test_only_plain_tori_have_closed_forms(spec: str) -> None:
    assert closed_form_ps(simulate(build("bucket", "all-reduce", from_spec(spec), "1MiB"))) is None


def rectangular_xi(d_min: int, d_max: int, n_dims: int) -> Fraction:
    """The same for one long dimension, in closed form: equation 3 of the paper with its second term corrected."""
    sigmas = range(d_min.bit_length() - 1, d_max.bit_length() - 1)
    long = sum((_swing_distance(s) / 2 ** (s + 1 - sigmas.start) for s in sigmas), Fraction(0))
    return swing_xi((d_min,) * n_dims) + Fraction(n_dims, d_min**n_dims) * long
