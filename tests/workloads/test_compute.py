"""Compute times: what takes longer than the clock runs is refused where it is computed, with what makes it so."""

from __future__ import annotations

import pytest

from sim.cli import main
from topologies import WeftError
from workloads.compute import Accelerator
from workloads.training import training_job
from workloads.workload import Layer, Phase, Workload

TRAIN = "train --topology RI(2)_SW(2) --workload bert-large --parallelism tp=2 --samples 64 --peak 312 --efficiency 0.5"


def test_times_are_in_nanoseconds() -> None:
    assert Accelerator(100e12, 0.5).time_ns(5e12) == 1e8
    assert Accelerator(100e12, 0.5).update_ns(1e9) == 0.0
    assert Accelerator(100e12, 0.5, 34e9).update_ns(1e9) == 1e9


@pytest.mark.parametrize("rate", [(1e-300, 1.0), (1e-300, 1e-300)])
def test_a_rate_that_is_hardly_one_is_refused(rate: tuple[float, float]) -> None:
    with pytest.raises(WeftError, match=r"computing 1e\+12 operations at .* FLOP/s .* exceeds the range of the clock"):
        Accelerator(*rate).time_ns(1e12)


def test_layers_of_a_file_are_named() -> None:
    from topologies import ring

    endless = Workload("own", (Layer("first", Phase(1e300)),))
    with pytest.raises(WeftError, match=r"forward first takes 1e\+291 s, which exceeds the range of the clock"):
        training_job(ring(4), endless, {})
    with pytest.raises(WeftError, match=r"layer first of own, 1e\+200 times as long, takes"):
        Workload("own", (Layer("first", Phase(1e5)),)).scaled(1e200)


@pytest.mark.parametrize(("changed", "said"), [
    ("--efficiency 1e-300", "at 3.12e-286 FLOP/s (peak x efficiency) takes"),
    ("--compute-scale 1e300", "1e+300 times as long, takes"),
    ("--updates --memory-bandwidth 1e-300GB/s", "parameters at 1e-291 B/s of memory takes"),
    ("--samples 1000000000000000000", "operations at 1.56e+14 FLOP/s (peak x efficiency) takes"),
])
def test_a_command_refuses_what_the_clock_cannot_hold(
    changed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TRAIN.split(), *changed.split()]) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1
