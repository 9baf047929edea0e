"""What takes longer than anybody waits for is refused with its size and the limit, before any of it is built."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from collectives.registry import ALGORITHMS, algorithms_for
from sim.cli import main
from sim.lower import quotient
from sim.study import spec
from sim.study.points import MOST_PREPARED
from topologies import TOPOLOGIES, Topology, WeftError, from_spec
from topologies.core import extents

LONGEST_S = 2.0
"""Of CPU, from the start of a command to its refusal."""

HUGE = {
    "torus": "torus:2100x2001", "ring": "ring:9000000", "mesh": "mesh:2100x2001", "fc": "fc:4200", "switch":
    "switch:9000000", "fat-tree": "fat-tree:256", "leaf-spine": "leaf-spine:4096x4096x64", "hx2mesh":
    "hx2mesh:2100x2100", "hx4mesh": "hx4mesh:2100x2100", "hypercube": "hypercube:20", "hyperx": "hyperx:400x400",
    "dragonfly": "dragonfly:4097x64x64", "random-regular": "random-regular:1000000x20", "circulant":
    "circulant:4000000x1x5x7", "twisted-torus": "twisted-torus:150x150x300", "ocs": "ocs:5000000x4", "dgx-a100":
    "dgx-a100:500000", "dgx-h100": "dgx-h100:500000", "dgx1": "dgx1:2000000", "mi250": "mi250:500000",
    "multidim": "RI(2100)_RI(2001)", "rails": "rails:2000000x8", "rotor": "rotor:5000000x4", "patch-panel":
    "patch-panel:5000000x4", "pod": "pod:400x400x400", "hybrid": "hybrid:5000000x4",
}

LARGE = ["torus:500x500", "ring:500000", "switch:500000", "ocs:300000x4", "fat-tree:96", "RI(500)_SW(500)"]
"""More than a comparison of all algorithms prepares in minutes, and less than can be built."""

NAMED = {
    "compare": ["--algorithms", "swing", "-b", "1M"],
    "validate": ["--algorithm", "bucket", "-b", "1M"],
    "bound": [],
    "trace": ["--algorithm", "ring", "-b", "1M"],
    "topology": [],
    "schedule": ["--algorithm", "ring", "-b", "1M"],
    "train": ["--model", "gpt-3", "--device", "h100"],
}


@pytest.fixture(autouse=True)
def nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def built(topology: Topology) -> None:
        raise AssertionError(f"{topology.name} is built")

    monkeypatch.setattr(Topology, "__post_init__", built)
    monkeypatch.setattr(extents, "physical_memory", lambda: 2.0**34)


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The line of a command that is refused in time."""
    before = time.process_time()
    assert main([*words, "--quiet"] if words[0] != "topology" else [*words]) == 2
    assert time.process_time() - before < LONGEST_S
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_every_family_has_a_fabric_here() -> None:
    assert set(HUGE) == set(TOPOLOGIES)


@pytest.mark.table
@pytest.mark.parametrize("command", NAMED)
@pytest.mark.parametrize("family", HUGE)
def test_no_command_builds_what_is_too_large(family: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = refusal(capsys, command, "--topology", HUGE[family], *NAMED[command])
    assert re.search(r"\d.* (the limit is|at most) \d", line), line


@pytest.mark.parametrize("spec", LARGE)
def test_all_algorithms_are_prepared_where_that_takes_minutes_at_most(
    spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(f'[topology]\nspec = "{spec}"\n[sweep]\nbegin = "1K"\nend = "8K"\n', encoding="utf-8")
    many = len(algorithms_for("all-reduce"))
    most = MOST_PREPARED // many
    for words in (["compare", "--topology", spec, "-b", "1M"], ["sweep", str(file)]):
        line = refusal(capsys, *words)
        assert re.search(rf"has \d+ nodes and \d+ links .*: the limit is {most:,} links for {many} ", line), line
        assert "name some (--algorithms)" in line
    with pytest.raises(AssertionError, match="is built"):
        main(["compare", "--topology", spec, "-b", "1M", "--algorithms", "swing"])


@pytest.mark.parametrize("words", [
    ["optimize", "--network", "RI(3000)_SW(3000)", "--budget", "500GB/s", "--workload", "gpt-3"],
    ["optimize", "--network", "RI(3000)_RI(3000)", "--budget", "500GB/s", "--collective", "all-reduce", "-b", "1M"],
    ["optimize", "--network", "RI(2000)_RI(2001)", "--budget", "500GB/s", "--collective", "all-reduce", "-b", "1M"],
    ["share", "--topology", "torus:2100x2001", "--tenant", "all-reduce ring 1MiB"],
])
def test_other_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search(r"\d.* (the limit is|at most) \d", refusal(capsys, *words))


def test_a_timeline_of_all_ranks_is_refused_before_symmetries_are_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def tried(*_: object) -> None:
        raise AssertionError("a symmetry is tried")

    monkeypatch.undo()  # the fabric is built
    monkeypatch.setattr(extents, "physical_memory", lambda: 2.0**34)
    monkeypatch.setattr(quotient, "_largest", tried)
    line = refusal(capsys, "trace", "--topology", "torus:500x501", "--algorithm", "bucket", "-b", "1M")
    assert re.search(r"simulating 250,500 of 250,500 ranks .* the limit is", line), line


@pytest.mark.parametrize(("kind", "options"), [
    ("all-reduce", []), ("all-reduce", ["--form", "best-roots"]), ("all-reduce", ["--form", "two-phase"]),
    ("all-reduce", ["--option", "k=2"]), ("all-gather", []), ("all-gather", ["--option", "loss=0.2"]),
    ("reduce-scatter", ["--option", "most_k=4"]), ("broadcast", []), ("reduce", ["--option", "most_k=4"]),
])
def test_trees_for_many_npus_are_refused_before_a_flow_is_computed(
    kind: str, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()  # the fabric is built
    words = ["schedule", "--topology", "fat-tree:40", "--collective", kind, "--algorithm", "pipelined", "-b", "1GiB"]
    line = refusal(capsys, *words, *options)
    assert re.search(r"packing trees for 16,000 NPUs .* \(limit: (256|1,024)\)", line), line


@pytest.mark.parametrize("name", [name for name, one in ALGORITHMS.items() if one.is_long.__name__ == "is_long"])
def test_what_takes_long_to_build_runs_where_it_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the fabric is built
    fabric, kind = from_spec("mesh:17x17"), next(iter(ALGORITHMS[name].functions))
    assert ALGORITHMS[name].is_long(fabric) and not ALGORITHMS[name].is_long(from_spec("ring:8"))
    monkeypatch.setattr(spec, "build", lambda *given, **more: "built")
    keys = {"topology": {"spec": "mesh:17x17"}, "collective": {"name": kind}, "sweep": {"begin": "1K"}}
    with pytest.raises(WeftError, match=f"{name} takes long to build on 289 NPUs; name it"):
        spec.Spec.from_dict(keys).build_schedule(name, fabric, "1K")
    keys["collective"]["algorithms"] = [name]
    assert spec.Spec.from_dict(keys).build_schedule(name, fabric, "1K") == "built"
