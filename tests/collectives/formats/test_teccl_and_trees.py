"""TE-CCL JSON and ForestColl XML: what is written is read back, proved, and takes as long; what is wrong is told."""

from __future__ import annotations

import json

import pytest

from collectives import build
from collectives.core.proof import ScheduleError
from collectives.formats.files import to_forestcoll
from collectives.formats.teccl import FLOWS, PATHS, teccl_schedule, to_teccl
from sim import simulate
from topologies import WeftError, from_spec

PUBLISHED = {  # in the words of microsoft/TE-CCL: three GPUs in a row, a chunk of each to both others
    "1-Epoch_Duration": 1e-06, "3-Epochs_Required": 2,
    FLOWS: [f"Chunk 0 from {a} traveled over {b}->{c} in epoch {e}" for a, b, c, e in
            ((0, 0, 1, 0), (1, 1, 0, 0), (1, 1, 2, 0), (2, 2, 1, 0), (0, 1, 2, 1), (2, 1, 0, 1))],
    PATHS: {f"Demand at {d} for chunk 0 from {s} met by epoch {e}": [] for s, d, e in
            ((0, 1, 0), (0, 2, 1), (1, 0, 0), (1, 2, 0), (2, 1, 0), (2, 0, 1))},
}


def back(text, suffix, kind, topology, tmp_path, size="1MiB"):
    path = tmp_path / f"plan{suffix}"
    path.write_text(text)
    return build(str(path), kind, topology, size)


def test_a_published_form(tmp_path):
    built = back(json.dumps(PUBLISHED), ".json", "all-gather", from_spec("mesh:3"), tmp_path, "3MB")
    t = built.pattern.transfers()
    assert built.proof == "proved" and t.src.size == 6 and (t.dep_src.size, t.step.max()) == (2, 1)


@pytest.mark.table
@pytest.mark.parametrize(("name", "kind"), [
    ("ring", "all-gather"), ("pipelined", "all-gather"), ("direct", "all-gather"), ("bruck", "all-gather"),
    ("tacos", "all-gather"), ("direct", "all-to-all"), ("pairwise", "all-to-all"), ("concurrent-flow", "all-to-all"),
    ("bruck", "all-to-all"),
])
@pytest.mark.parametrize("spec", ["switch:5", "dgx-a100:2", "leaf-spine:2x3x2", "fc:4"])
def test_teccl_there_and_back(name, kind, spec, tmp_path):
    topology = from_spec(spec)
    try:
        built = build(name, kind, topology, "1MiB")
        text = to_teccl(built)
    except WeftError:
        return  # a refusal is an answer: of routes through other GPUs, as into those without a NIC of their own
    again = back(text, ".json", kind, topology, tmp_path)
    assert again.proof == "proved" and again.block_bytes == built.block_bytes
    assert again.pattern.transfers().blocks.sum() == built.pattern.transfers().blocks.sum()
    document = json.loads(text)
    p = topology.n_npus
    wanted = p * (p - 1) * built.pattern.n_blocks // (p if kind == "all-gather" else p * p)
    assert len(document[PATHS]) == wanted and all(document[PATHS].values())
    assert document["4-Collective_Finish_Time"] == pytest.approx(
        document["1-Epoch_Duration"] * document["3-Epochs_Required"])
    assert simulate(again).time_ps > 0


@pytest.mark.table
@pytest.mark.parametrize("name", ["ring", "pipelined", "direct", "bruck", "tacos", "bfb", "nccl-rings"])
@pytest.mark.parametrize("spec", ["ring:5", "torus:4x4", "dgx-a100:2", "leaf-spine:2x3x2", "mesh:3x2"])
def test_forestcoll_there_and_back(name, spec, tmp_path):
    topology = from_spec(spec)
    try:
        built = build(name, "all-gather", topology, "64MiB")
    except WeftError:
        return  # a refusal is an answer
    again = back(to_forestcoll(built), ".xml", "all-gather", topology, tmp_path, "64MiB")
    assert again.proof in ("proved", "proved tree by tree") and again.pattern.n_blocks == built.pattern.n_blocks
    cut = {"chunks": 16, "discipline": "lowest-chunk-first"}
    assert simulate(again, **cut).time_ps <= 1.03 * simulate(built, **cut).time_ps


@pytest.mark.parametrize(("change", "says"), [
    ({FLOWS: 3}, "is no list"), ({PATHS: []}, "or 8-Chunk paths no table"),
    ({FLOWS: ["Chunk 0 from 2"]}, "is no flow: write"),
    ({FLOWS: ["Chunk 0 from 2 traveled over 2->1 with volume 0.5 in epoch 1"]}, "fractions of chunks are not read"),
    ({PATHS: {"Demand at 1": []}}, "is no demand"),
    ({PATHS: {"Demand at 1 for chunk 0 from 0 met by epoch 1": [], "Demand at 2 for chunk 0 from 0 met by epoch 1": [],
              "Demand at 3 for chunk 1 from 0 met by epoch 1": []}}, r"chunks go to \[1, 2\] GPUs"),
    ({FLOWS: [*PUBLISHED[FLOWS], "Chunk 7 from 0 traveled over 0->1 in epoch 0"]}, "nobody wants chunk 7 from 0"),
    ({FLOWS: PUBLISHED[FLOWS][:-1]}, "ends without the contribution"),
    ({FLOWS: [*PUBLISHED[FLOWS], "Chunk 0 from 0 traveled over 9->1 in epoch 0"]}, "is of 10 GPUs; mesh:3 has 3"),
])
def test_refused(change, says, tmp_path):
    with pytest.raises((WeftError, ScheduleError), match=says):
        back(json.dumps(PUBLISHED | change), ".json", "all-gather", from_spec("mesh:3"), tmp_path)


def test_what_cannot_be_written():
    ring = from_spec("ring:4")
    for write in (to_teccl, to_forestcoll):
        with pytest.raises(WeftError, match="all-reduce: it has"):
            write(build("ring", "all-reduce", ring, "1MiB"))
    with pytest.raises(WeftError, match="passes 1, which is no switch"):
        to_teccl(build("direct", "all-gather", from_spec("mesh:3"), "1MiB"))
    with pytest.raises(WeftError, match="equal chunks"):
        to_teccl(build("direct", "all-to-all", ring, "1MiB", pairs="zipf:1"))


def test_a_file_of_one_gpu_sends_nothing() -> None:
    text = json.dumps({"7-Flows": [], "8-Chunk paths": {"Demand at 0 for chunk 0 from 0 met by epoch 0": []}})
    assert simulate(teccl_schedule(text, "one", from_spec("switch:1"), "1KiB")).time_ps == 0
