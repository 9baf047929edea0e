"""Which flows take which routes, and what crosses servers, beside plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.program import Program, columns
from sim.program.columns import work_of_servers, work_ps
from sim.program.turns import _in_use
from tests.strategies import programs


@given(st.integers(1, 6), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=12))
def test_flows_and_routes_in_use_are_numbered_in_order(n_routes: int, tasks: list[tuple[int, int]]) -> None:
    """Also where a route has several flows, or none, and a flow several routes."""
    pairs = [(flow, route % n_routes) for route, flow in tasks]
    flow, route = np.array(pairs, np.int64).reshape(-1, 2).T
    flows, routes, kind = (column.tolist() for column in _in_use(flow, route, n_routes))
    used = sorted(set(pairs))
    assert list(zip(flows, routes, strict=True)) == used
    assert kind == [used.index(pair) for pair in pairs]


@pytest.mark.parametrize("at_once", [16, 2**20])
@given(program=programs())
def test_work_of_servers_is_added_up_whatever_is_looked_at_at_once(at_once: int, program: Program) -> None:
    service_ps, work = np.zeros((2, program.n_servers), np.int64)
    for task in range(program.n_tasks):
        cut, route = program.task_cut[task], program.task_route[task]
        first = program.cut_first[cut]
        sizes = [program.cut_size[cut, int(chunk >= first)] for chunk in range(program.cut_chunks[cut])]
        for at in range(program.route_ptr[route], program.route_ptr[route + 1]):
            server = program.route_server[at]
            service_ps[server] += sum(int(program.service(size, program.server_rate[server])) for size in sizes)
            work[server] += sum(int(program.chunk_work[size]) for size in sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "BLOCK", at_once)
        assert work_ps(program).tolist() == service_ps.tolist()
        assert work_of_servers(program).tolist() == work.tolist()
