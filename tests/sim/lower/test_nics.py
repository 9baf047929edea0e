"""Do the defaults of a NIC count the links that a schedule uses at once, and not all that a fabric has?"""

from __future__ import annotations

import pytest

from collectives import build
from sim import simulate
from sim.cli import main
from topologies import from_spec


@pytest.mark.parametrize(("spec", "algorithm", "links"), [
    ("torus:4x4", "swing", 4), ("torus:4x4", "recursive-doubling", 4), ("torus:2x8", "bucket", 3),
    ("hyperx:8x8", "swing", 4), ("hyperx:8x8", "bucket", 4), ("hyperx:8x8", "direct", 14), ("RI(2)_FC(8)", "swing", 4),
    ("switch:8", "direct", 1), ("circulant:16x1x3x5", "totient-rings", 6),
])
def test_a_nic_is_as_fast_as_twice_the_links_in_use(spec: str, algorithm: str, links: int) -> None:
    """It was twice all 126 links of hyperx:64x64, of which Swing uses four: 5 to 10 % too fast."""
    schedule = build(algorithm, "all-reduce", from_spec(spec, "50GB/s"), "1MiB")
    times = [
        simulate(schedule, nic="shared", nic_order="fifo", injection_rate=rate, nic_engines=engines).time_ps
        for rate, engines in ((None, None), (f"{2 * 50 * links}GB/s", links))
    ]
    assert times[0] == times[1]


@pytest.mark.parametrize(("spec", "preset", "told"), [
    ("hx4mesh:2x1", "swing-paper", "swing-paper is of tori: hx4mesh has other links and endpoints (swing-hx)"),
    ("torus:4x4", "swing-hx",
     "swing-hx is of HammingMesh: torus has other links and endpoints (swing-paper, swing-sst)"),
    ("torus:4x4", "swing-sst", ""), ("hx2mesh:2x2", "swing-hx", ""), ("hyperx:3x3", "swing-sst", ""),
    ("switch:4", "swing-paper", "swing-paper is of tori: switch has other links and endpoints"),
])
def test_a_preset_says_what_fabric_it_was_not_made_for(
    spec: str, preset: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ["--algorithm", "bucket", "-b", "64K"]
    for command, asked in (("compare", one), ("validate", one), ("share", ["--tenant", "all-reduce bucket 64KiB"])):
        assert main([command, "--topology", spec, *asked, "--preset", preset, "--vcs", "1"]) == 0
        said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# preset")]
        assert said == ([f"# preset {told}"] if told else [])
