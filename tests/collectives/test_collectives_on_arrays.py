"""A second proof, by numbers: every schedule is executed on arrays in random orders."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collectives.cases import CASES, WITH_ONES, Case, every_case, shapes, supported
from tests.oracles import arrays
from topologies import torus

SHAPES = [*shapes(12), (4, 4), (8, 2), (20,), (17,), *WITH_ONES]

PARTS = 8


@pytest.mark.table
@pytest.mark.parametrize("part", range(PARTS), ids="part {}".format)
@every_case
def test_arrays_come_out_right(case, part):
    """Every shape that the algorithm does, a share of them in each part."""
    for seed, shape in list(enumerate(filter(lambda one: supported(case, one), SHAPES)))[part::PARTS]:
        arrays.run(case.build(torus(shape)).pattern, seed)


@settings(max_examples=40, deadline=None)
@given(case=st.sampled_from(CASES), shape=st.sampled_from(shapes(10)), seed=st.integers(0, 2**32))
def test_arrays_come_out_right_in_any_order(case: Case, shape, seed):
    if supported(case, shape):
        arrays.run(case.build(torus(shape)).pattern, seed)


def test_the_oracle_sees_a_missing_dependency():
    pattern = CASES[0].build(torus(8)).pattern
    t = pattern.transfers()
    object.__setattr__(pattern, "emit", lambda ranks: t._replace(dep_ptr=t.dep_ptr * 0))
    with pytest.raises(AssertionError):
        arrays.run(pattern, 0)
