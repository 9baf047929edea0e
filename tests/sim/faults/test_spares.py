"""Spare cubes of a pod, beside plans that are written out."""

import pytest

from collectives import build
from sim import simulate
from sim.cli import main
from sim.faults.plan import FaultPlan, NodeDown, Repair, Straggler
from topologies import from_spec

pytestmark = pytest.mark.compiled

SLOW = Straggler(npu="npu1", delay="1us")


def cube_of(npu):
    """Chips of a cube of a slice of 4x4x8, by coordinates: dimension 0 varies fastest."""
    x, y, z = npu % 4, npu // 4 % 4, npu // 16
    return [other for other in range(128)
            if (other % 4 // 4, other // 4 % 4 // 4, other // 16 // 4) == (x // 4, y // 4, z // 4)]


def dark(npu, at_us, until_us):
    names = [f"npu{one}" for one in cube_of(npu)]
    return [NodeDown(node=name, at=f"{at_us}us") for name in names] + [
        Repair(node=name, at=f"{until_us}us") for name in names]


def time_ps(spec, faults):
    work = build("swing", "all-reduce", from_spec(f"pod:4x4x8,circuits=torus{spec}"), "256KiB")
    return simulate(work, chunks=1, faults=FaultPlan(faults=tuple(faults))).time_ps


@pytest.mark.parametrize(
    ("spec", "down", "expected"),
    [
        (",spares=1,delay=7us", [(5, 2)], [(5, 2, 9)]),
        (",spares=1,delay=7us", [(5, 2), (6, 2), (7, 3)], [(5, 2, 9)]),  # all in the cube that is replaced
        (",spares=2,delay=7us", [(5, 2), (70, 3)], [(5, 2, 9), (70, 3, 10)]),
        (",spares=2,delay=3us", [(5, 2), (9, 6)], [(5, 2, 5), (9, 6, 9)]),  # and its successor too
    ],
)
def test_a_cube_is_dark_and_then_replaced(spec, down, expected):
    given = [SLOW, *(NodeDown(node=f"npu{npu}", at=f"{at}us") for npu, at in down)]
    plain = {fault for npu, at, until in expected for fault in dark(npu, at, until)}
    plain |= {fault for fault in given if isinstance(fault, NodeDown)}
    assert time_ps(spec, given) == time_ps("", [SLOW, *plain])


def test_too_few_spares_and_bad_input(tmp_path, capsys):
    file = tmp_path / "faults.toml"
    words = ["compare", "--quiet", "--algorithms", "swing", "-b", "64K", "--faults", str(file), "--topology"]
    file.write_text("[[node-down]]\nnode = 'npu5'\n[[node-down]]\nnode = 'npu70'\nat = '1us'\n")
    assert main([*words, "pod:4x4x8,circuits=torus,spares=1"]) == 2
    assert "node npu70 is down from 1 us on, and nothing repairs it" in capsys.readouterr().err
    file.write_text("[[node-down]]\nnode = 'npu500'\n")
    assert main([*words, "pod:4x4x8,circuits=torus,spares=1"]) == 2
    assert "no NPU 'npu500'" in capsys.readouterr().err
    for spares in ("x", "-1", "1.5", "1e3", "9" * 30):
        assert main([*words, f"pod:4x4x8,spares={spares}"]) == 2
        error = capsys.readouterr().err
        assert "spares are a number of cubes" in error and error.count("\n") == 1
