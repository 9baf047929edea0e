"""Every algorithm on every shape: proved, or refused with its limit."""

from __future__ import annotations

from functools import partial

import pytest

from collectives.core import pattern
from collectives.registry import ALGORITHMS
from tests.collectives.cases import (
    CASES,
    LIMITS,
    NEEDS_PRODUCT,
    READS_LINKS,
    WITH_ONES,
    Case,
    every_case,
    shapes,
    supported,
)
from tests.oracles import arrays
from topologies import TOPOLOGIES, WeftError, from_spec, torus
from topologies.core.product import DimensionOrderRouter

LONG = [(n,) for n in range(33, 41)]
EVERY = [*shapes(32), *LONG, *WITH_ONES]
FEW = [shape for shape in [*shapes(12), *WITH_ONES] if shape == tuple(sorted(shape, reverse=True))]
"""For the algorithms that read the links of a fabric, which know nothing of its shape: `make verify` takes them all."""

by_shape = partial(pytest.mark.parametrize, "shape", ids=lambda shape: "x".join(map(str, shape)))
SHAPED = [case for case in CASES if case.algorithm not in (*READS_LINKS, *NEEDS_PRODUCT)]
OTHERS = [case for case in CASES if case not in SHAPED]
PARTS = 4
"""Of the families, so that a sample is of them too."""


@pytest.mark.full
@pytest.mark.table
@by_shape(EVERY)
def test_proved_or_refused_with_the_limit(shape):
    fabric = torus(shape)
    for case in SHAPED:
        _proved_or_refused(case, fabric)


@pytest.mark.table
@by_shape(FEW)
def test_readers_of_links_prove_or_refuse(shape):
    fabric = torus(shape)
    for case in OTHERS:
        _proved_or_refused(case, fabric)


@pytest.mark.verify
@by_shape([shape for shape in EVERY if shape not in FEW])
def test_readers_of_links_on_every_shape(shape):
    fabric = torus(shape)
    for case in OTHERS:
        _proved_or_refused(case, fabric)


@pytest.mark.table
@pytest.mark.parametrize("part", range(PARTS), ids="part {}".format)
@every_case
def test_every_family(case, part):
    for family in list(TOPOLOGIES.values())[part::PARTS]:
        for spec in family.samples:
            _proved_or_refused(case, from_spec(spec))


def _proved_or_refused(case: Case, fabric) -> None:
    product = isinstance(fabric.router, DimensionOrderRouter)
    needs_product = case.algorithm in NEEDS_PRODUCT or case.form == "rail-wise"
    if case.algorithm in READS_LINKS or (needs_product and not product):
        _proved_or_refused_by_name(case, fabric)
    elif supported(case, _followed(case, fabric)):
        assert case.build(fabric).proof in ("proved", f"proved on {fabric.name}")  # or with fewer pipeline chunks
    else:
        with pytest.raises(WeftError, match=LIMITS[case.algorithm]) as refusal:
            case.build(fabric)
        assert fabric.name in str(refusal.value)


def _followed(case: Case, fabric) -> tuple[int, ...]:
    """Extents that an algorithm follows: where NPUs hang on switches of one tier, a ring has its ranks in a row."""
    tiers = set(fabric.dimension[fabric.src < fabric.n_npus].tolist())
    return (fabric.n_npus,) if case.algorithm == "ring" and len(tiers) < 2 else fabric.shape


def _proved_or_refused_by_name(case: Case, fabric) -> None:
    try:
        outcome = case.build(fabric).proof
    except WeftError as refusal:
        outcome = str(refusal)
    assert outcome in ("proved", "proved tree by tree") or fabric.name in outcome


@pytest.mark.parametrize("root", [0, 1, 4, 6])
@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
@pytest.mark.parametrize("form", ["binomial", "chain"])
def test_any_root(form, kind, root):
    assert ALGORITHMS["tree"].functions[kind](torus(7), "1KiB", form=form, root=root).proof == "proved"


@pytest.mark.parametrize("root", [0, 1, 4, 6])
@pytest.mark.parametrize("kind", ["gather", "scatter"])
@pytest.mark.parametrize("name", ["tree", "bine", "direct"])
def test_any_root_of_parts(name, kind, root):
    """The oracle on arrays, which has its own word for what is wanted, and the fewest bytes at the root."""
    pattern = ALGORITHMS[name].functions[kind](torus(7), "1KiB", root=root).pattern
    arrays.run(pattern, root)
    t = pattern.transfers()
    assert t.blocks[(t.dst if kind == "gather" else t.src) == root].sum() == 6


@pytest.mark.parametrize("kind", ["all-reduce", "reduce-scatter", "all-gather"])
@pytest.mark.parametrize("shape", [(2,), (7,), (3, 3), (4, 8)])
def test_one_direction(shape, kind):
    schedule = ALGORITHMS["ring"].functions[kind](torus(shape), "1KiB", directions=1)
    assert schedule.proof == "proved"
    assert schedule.pattern.transfers().port.max() == len(shape) - 1


@pytest.mark.verify
@by_shape([shape for shape in shapes(128) if list(shape) == sorted(shape, reverse=True)])
def test_sorted_shapes_to_128(shape, monkeypatch):
    """Each is proved itself, however long it takes, and not on a smaller one."""
    monkeypatch.setattr(pattern, "PROOF_MOVES", 10**9)
    monkeypatch.setattr(pattern, "PROOF_TRANSFERS", 10**9)
    fabric = torus(shape)
    for case in CASES:
        _proved_or_refused(case, fabric)


@pytest.mark.table
@pytest.mark.parametrize(
    ("spec", "smaller"),
    [
        ("torus:64x64", "torus:8x8"), ("torus:64x16", "torus:16x4"), ("torus:256x1x128", "torus:8x1x4"),
        ("torus:96x96", "torus:6x6"), ("torus:1001", "torus:63"),
        pytest.param("torus:2x2x2x2x2x2x2x2", "torus:2x2x2x2x2x2", marks=pytest.mark.full),  # light: the five above
        pytest.param("torus:13x12x9", "torus:3x6x3", marks=pytest.mark.full),
    ],
)  # fmt: skip
def test_large_members_are_proved_on_small_ones(spec, smaller):
    assert ALGORITHMS["bucket"].functions["all-reduce"](from_spec(spec), "1GiB").proof == f"proved on {smaller}"


@pytest.mark.full
@pytest.mark.parametrize(
    ("spec", "smaller"),
    [
        ("torus:64x64", "torus:4x4"), ("torus:64x16", "torus:8x4"), ("torus:20x80", "torus:4x8"),
        ("torus:81x27", "torus:9x3"), ("torus:150x50", "torus:18x6"),
    ],
)  # fmt: skip
def test_large_rings_keep_their_cycles(spec, smaller):
    assert ALGORITHMS["ring"].functions["all-reduce"](from_spec(spec), "1GiB").proof == f"proved on {smaller}"
