"""Symmetric runs too large for a full one, against closed forms and counts by hand."""

from __future__ import annotations

from fractions import Fraction
from math import prod

import pytest

from collectives import build
from sim import simulate
from sim.program.model import Model
from topologies import from_spec

pytestmark = pytest.mark.compiled

LATENCY_PS = 400_000
"""Of a hop: wire and router by default."""

RATE_BPS = Fraction(50 * 10**9)
SIZE_BYTES = 2**26


def service_ps(work_bytes: int) -> int:
    """Rounded up to whole picoseconds, at least one."""
    return max(1, -(-work_bytes * 10**12 * RATE_BPS.denominator // RATE_BPS.numerator))


def block_bytes(n_blocks: int) -> int:
    """Of the array, padded to whole elements of 4 bytes."""
    return -(-SIZE_BYTES // (4 * n_blocks)) * 4


@pytest.mark.table
@pytest.mark.parametrize(
    ("topology", "ports"), [("ring:64", 2), ("ring:4096", 2), ("torus:16x16", 4), ("torus:64x64", 4)]
)
def test_rings_take_as_long_as_their_steps(topology: str, ports: int) -> None:
    """All-reduce in one chunk: 2(p-1) steps, each of a service and a hop, on every directed cycle at once."""
    fabric = from_spec(topology)
    result = simulate(build("ring", "all-reduce", fabric, SIZE_BYTES), model=Model(chunks=1))
    steps = 2 * (fabric.n_npus - 1)
    assert result.time_ps == steps * (service_ps(block_bytes(ports * fabric.n_npus)) + LATENCY_PS)
    assert result.events == steps * ports


@pytest.mark.table
@pytest.mark.parametrize("shape", [(64, 64), (16, 16, 16), (256, 256)])
def test_buckets_take_as_long_as_their_phases(shape: tuple[int, ...]) -> None:
    """On a cube: in each phase n - 1 steps along one dimension, on parts n times as small, and the same back."""
    fabric = from_spec("torus:" + "x".join(map(str, shape)))
    n, n_dims, p = shape[0], len(shape), prod(shape)
    result = simulate(build("bucket", "all-reduce", fabric, SIZE_BYTES), model=Model(chunks=1))
    block = block_bytes(2 * n_dims * p)
    phases = [(n - 1) * (service_ps(block * p // n ** (turn + 1)) + LATENCY_PS) for turn in range(n_dims)]
    assert result.time_ps == 2 * sum(phases)
    assert result.events == 2 * n_dims * 2 * n_dims * (n - 1)
    assert result.symmetry.startswith(f"1 of {p} ranks")


@pytest.mark.parametrize("side", [32, 128])
def test_swing_crosses_as_many_links_as_its_distances(side: int) -> None:
    """Distances 1, 1, 3, 5, 11, ... in both dimensions, on four ports, there and back."""
    fabric = from_spec(f"torus:{side}x{side}")
    result = simulate(build("swing", "all-reduce", fabric, SIZE_BYTES, form="bandwidth"), model=Model(chunks=1))
    distances = [abs(1 - (-2) ** step) // 3 for step in range(1, side.bit_length())]
    assert result.events == 4 * 2 * 2 * sum(distances)
    assert result.lower_bound_ps <= result.time_ps


def test_the_check_by_sampling_says_so() -> None:
    """Above a thousand nodes the group is looked at from a sample of ranks, and the result tells."""
    result = simulate(build("swing", "all-reduce", from_spec("torus:64x64"), "1MiB"), model=Model(chunks=1))
    assert "checked by sampling" in result.symmetry
