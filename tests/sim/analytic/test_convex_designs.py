"""The convex solvers against closed forms, other solvers, and their own certificates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from sim.analytic.constraints import Constraint, Feasible, budget, parse_constraint
from sim.analytic.convex import Epigraph, certify, flat_epigraph, least_time
from sim.analytic.cost import Cost
from sim.analytic.time_cost import least_time_cost
from sim.analytic.traffic import F64
from tests.oracles import libra as oracle
from topologies import WeftError


def sum_of_maxima(constant: float, calls: list[tuple[float, list[float]]]) -> Epigraph:
    n_dims = len(calls[0][1])
    rows = [(at, 0.0, np.eye(n_dims)[dim] * m) for at, (_, row) in enumerate(calls) for dim, m in enumerate(row)]
    return flat_epigraph(constant, np.array([weight for weight, _ in calls]), rows, n_dims)


def random_calls(seed: int, n_dims: int, n_calls: int) -> list[tuple[float, list[float]]]:
    rng = np.random.default_rng(seed)
    return [(float(rng.integers(1, 9)), (10 ** rng.uniform(6, 9, n_dims)).tolist()) for _ in range(n_calls)]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 5))
def test_least_time_is_that_of_slsqp(seed: int, n_dims: int, n_calls: int) -> None:
    """Never above a general solver's best of seven starts, and certified."""
    calls = random_calls(seed, n_dims, n_calls)
    found = least_time(sum_of_maxima(1e6, calls), Feasible([budget(500, n_dims, spent=False)], n_dims))
    assert found.time_ns <= oracle.least_sum_of_maxima(1e6, calls, 500.0) * (1 + 1e-7)
    alone = [w * oracle.collective_ns(m, found.bandwidth_GBps.tolist()) for w, m in calls]
    assert found.time_ns == pytest.approx(1e6 + sum(alone))
    assert -1e-11 <= found.gap <= 1e-7


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4))
def test_any_multipliers_prove_a_bound(seed: int, n_dims: int, n_calls: int) -> None:
    """A certificate from random weights is below the time at random feasible bandwidths."""
    rng = np.random.default_rng(seed)
    time = sum_of_maxima(0.0, random_calls(seed, n_dims, n_calls))
    feasible = Feasible([budget(100, n_dims, spent=False), parse_constraint("B1 <= 60", n_dims)], n_dims)
    proof = certify(time, feasible, rng.normal(size=time.target.size), rng.normal(size=2) * 1e6, feasible.caps_GBps)
    for _ in range(10):
        point = rng.dirichlet(np.ones(n_dims)) * 100 * rng.uniform()
        point[0] = min(point[0], 60)
        assert time.time_ns(point) >= proof.bound_ns * (1 - 1e-12) - 1e-3


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.booleans())
def test_least_time_cost_is_a_bound(seed: int, n_dims: int, spent: bool) -> None:
    """No random feasible bandwidths have less time x cost than the certified bound."""
    rng = np.random.default_rng(seed)
    time = sum_of_maxima(10 ** rng.uniform(5, 8), random_calls(seed, n_dims, 3))
    cost = Cost(10 ** rng.uniform(2, 5, n_dims), 0.0 if spent else 10 ** rng.uniform(5, 7))
    feasible = Feasible([budget(300, n_dims, spent=spent)], n_dims)
    found = least_time_cost(time, feasible, cost)
    assert -1e-11 <= found.gap <= 1e-7
    assert feasible.violation(found.bandwidth_GBps) < 1e-7
    for _ in range(40):
        point = rng.dirichlet(np.ones(n_dims)) * 300 * (1.0 if spent else rng.uniform())
        assert time.time_ns(point) * cost.of(point) >= found.bound * (1 - 1e-12)


@pytest.fixture(scope="module")
def geometric_time_cost() -> Callable[[Epigraph, Feasible, Cost], F64]:
    from tests.oracles.geometric import geometric_time_cost  # cvxpy takes a second to load: not while collecting

    return geometric_time_cost


@pytest.mark.parametrize("seed", range(4))
def test_geometric_program_agrees(seed: int, geometric_time_cost: Callable[[Epigraph, Feasible, Cost], F64]) -> None:
    """Two ways to the same optimum under a budget that need not be spent."""
    rng = np.random.default_rng(seed)
    time = sum_of_maxima(10 ** rng.uniform(6, 8), random_calls(seed, 3, 3))
    cost = Cost(10 ** rng.uniform(3, 5, 3), 1e6)
    rows = [budget(400, 3, spent=False), parse_constraint("B1 >= 2*B2", 3), parse_constraint("B3 <= 100", 3)]
    feasible = Feasible(rows, 3)
    found, other = least_time_cost(time, feasible, cost), geometric_time_cost(time, feasible, cost)
    assert time.time_ns(other) * cost.of(other) == pytest.approx(found.product, rel=1e-5)
    assert feasible.violation(other) < 1e-5


def test_geometric_program_refuses_a_spent_budget(
    geometric_time_cost: Callable[[Epigraph, Feasible, Cost], F64]
) -> None:
    with pytest.raises(WeftError, match=r"sum of B = 10 GB/s' has no single term on one side"):
        geometric_time_cost(sum_of_maxima(1.0, [(1.0, [1.0, 1.0])]), Feasible([budget(10, 2, spent=True)], 2),
                            Cost(np.ones(2), 1.0))


@pytest.mark.parametrize(("compute", "fixed"), [(1e6, 1e5), (1e3, 1e8), (5e8, 2e6)])
def test_fixed_cost_has_a_closed_form(compute: float, fixed: float) -> None:
    """One dimension: (Tc + W/B)(C0 + k B) is least at sqrt(W C0 / (Tc k)), or at the budget."""
    work, price, total = 3e9, 2e3, 400.0
    time = sum_of_maxima(compute, [(1.0, [work])])
    found = least_time_cost(time, Feasible([budget(total, 1, spent=False)], 1), Cost(np.array([price]), fixed))
    best = min((work * fixed / (compute * price)) ** 0.5, total)
    assert found.product == pytest.approx((compute + work / best) * (fixed + price * best), rel=1e-7)


def test_ill_posed_is_refused_with_the_reason() -> None:
    time, cost = sum_of_maxima(1.0, [(1.0, [1.0, 2.0])]), Cost(np.ones(2))
    for rows in ([budget(10, 2, spent=False)], [budget(10, 2, spent=False), parse_constraint("B1 >= B2", 2)]):
        with pytest.raises(WeftError, match="cost has no fixed term and the constraints let all bandwidths shrink"):
            least_time_cost(time, Feasible(rows, 2), cost)
    least_time_cost(time, Feasible([budget(10, 2, spent=False), parse_constraint("B1 >= 1", 2)], 2), cost)


def test_constraints_of_the_release() -> None:
    """sum B = 1000, B1 = 500, B1 >= B2 >= B3, B3 + B4 = 200: the example that LIBRA ships."""
    rows = [parse_constraint(text, 4) for text in ("B1 = 500GB/s", "B1 >= B2", "B2 >= B3", "B3 + B4 = 200")]
    feasible = Feasible([budget(1000, 4, spent=True), *rows], 4)
    found = least_time(sum_of_maxima(0.0, random_calls(3, 4, 4)), feasible)
    assert feasible.violation(found.bandwidth_GBps) < 1e-8
    assert found.bandwidth_GBps[:2] == pytest.approx([500.0, 300.0], rel=1e-7)
    assert found.gap < 1e-7


@pytest.mark.parametrize(
    ("text", "row", "bound", "equal"),
    [
        ("B1 <= 400Gb/s", (1, 0), 50.0, False),
        ("2*B1 + 0.5 B2 = 10 - B1", (3, 0.5), 10.0, True),
        ("B1 >= B2 + 1e1", (-1, 1), -10.0, False),
        ("5 == B2", (0, -1), -5.0, True),
    ],
)
def test_parse_constraint(text: str, row: tuple[float, ...], bound: float, equal: bool) -> None:
    found = parse_constraint(text, 2)
    assert (found.coefficients, found.bound, found.equal, found.text) == (row, bound, equal, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [("B1", "joined by one of"), ("B1 <= B3", "no dimension B3"), ("B0 <= 1", "no dimension B0"),
     ("1 <= 2", "constrains no dimension"), ("B1 <= fast", "'fast' is neither"), ("B1 <= 3 <= B2", "joined by one of"),
     ("B1 - B1 <= 3", "constrains no dimension"), ("<= 3", "one side is empty")],
)
def test_what_a_constraint_is_not(text: str, message: str) -> None:
    with pytest.raises(WeftError, match=message):
        parse_constraint(text, 2)


def test_contradictions_name_the_fewest() -> None:
    texts = ("B1 <= 100", "B2 >= 450", "B1 >= 60")
    with pytest.raises(WeftError, match=r"contradict .*: sum of B = 500 GB/s; B2 >= 450; B1 >= 60$"):
        Feasible([budget(500, 3, spent=True), *(parse_constraint(text, 3) for text in texts)], 3)
    with pytest.raises(WeftError, match=r"cannot be met .*: B1 <= -1$"):
        Feasible([parse_constraint("B1 <= -1", 1)], 1)
    with pytest.raises(WeftError, match="leave dimension 2 without any bandwidth"):
        Feasible([budget(5, 2, spent=False), parse_constraint("B1 = 5", 2)], 2)
    with pytest.raises(WeftError, match="has 2 dimensions; the network has 3"):
        Feasible([Constraint((1.0, 1.0), 1.0, False, "x")], 3)


def test_unlimited_bandwidth_is_refused() -> None:
    with pytest.raises(WeftError, match="nothing limits the bandwidth of dimension 2"):
        least_time(sum_of_maxima(0.0, [(1.0, [1.0, 1.0])]), Feasible([parse_constraint("B1 <= 5", 2)], 2))


def test_one_collective_goes_by_its_bytes() -> None:
    """B* = total M / sum M, T* = sum M / total."""
    traffic = [1304.17e6, 380.38e6, 40.756e6, 13.161e6]
    found = least_time(sum_of_maxima(0.0, [(1.0, traffic)]), Feasible([budget(500, 4, spent=False)], 4))
    assert found.time_ns == pytest.approx(sum(traffic) / 500, rel=1e-9)
    assert found.bandwidth_GBps == pytest.approx(500 * np.array(traffic) / sum(traffic), rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(0, 2), st.booleans())
def test_points_and_caps_are_those_of_linear_programs(seed: int, n_dims: int, caps: int, spent: bool) -> None:
    """Where a formula has the point of the largest minimum, and where it has not, as with a cap below it."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.1, 9.0, n_dims)
    rows = [Constraint(tuple(weights), 100.0, spent and caps == 0, "sum")]
    rows += [parse_constraint(f"B{dim} <= {rng.uniform(1, 200)}", n_dims) for dim in rng.integers(1, n_dims + 1, caps)]
    found = Feasible(rows, n_dims)
    matrix, bound = np.array([one.coefficients for one in rows]), [one.bound for one in rows]
    low = np.hstack([np.vstack([matrix, -np.eye(n_dims)]), np.append(np.zeros(len(rows)), np.ones(n_dims))[:, None]])
    widest = linprog(np.append(np.zeros(n_dims), -1), A_ub=low, b_ub=np.append(bound, np.zeros(n_dims)))
    assert found.middle_GBps.min() == pytest.approx(-widest.fun)
    assert found.violation(found.middle_GBps) < 1e-9
    most = [-linprog(-unit, A_ub=matrix, b_ub=bound).fun for unit in np.eye(n_dims)]
    np.testing.assert_allclose(found.caps_GBps, most)
    assert found.most_GBps == pytest.approx(-linprog(-np.ones(n_dims), A_ub=matrix, b_ub=bound).fun)
    wanted = rng.uniform(0.1, 9.0, n_dims)
    low[: len(rows), :-1] *= wanted
    ratio = linprog(np.append(np.zeros(n_dims), -1), A_ub=low, b_ub=np.append(bound, np.zeros(n_dims)))
    assert (found.toward(wanted) / wanted).min() == pytest.approx(-ratio.fun)
