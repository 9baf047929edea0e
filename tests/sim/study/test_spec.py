"""One experiment, three spellings: do they say the same, and is every mistake named?"""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import build
from sim import simulate
from sim.cli.asked import spec_of
from sim.cli.flags import command_parser
from sim.program.model import PRESETS, SWING_PAPER, Model
from sim.program.model_options import parse_value
from sim.study.keys import SweepKeys, TopologyKeys, keys_of
from sim.study.spec import PRESET_LINKS, SECTIONS, Spec, sweep_sizes
from topologies import WeftError, from_spec, torus, write_topology

FULL: dict[str, dict[str, Any]] = {
    "topology": {"spec": "torus:4x4", "link_bandwidth": "200Gb/s", "link_latency": "50ns,60ns", "hop_latency": "0ns"},
    "collective": {"name": "all-reduce", "algorithms": ["swing", "ring"], "form": "latency",
                   "options": ["directions=1"], "element_bytes": 2},
    "model": {"preset": "swing-paper", "forwarding": "store-and-forward", "deliver": "tail", "chunks": 4,
              "header": "16B", "packet_header": "2B", "endpoint_latency": "1us", "tie": "split",
              "discipline": "priority", "bubble": False, "engine": "reference", "symmetry": "off", "seed": 3},
    "sweep": {"begin": "1K", "end": "64K", "factor": 4},
}


def toml(data: dict[str, dict[str, Any]]) -> str:
    lines = []
    for section, keys in data.items():
        lines += [f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in keys.items())]
    return "\n".join(lines)


def command_line(data: dict[str, dict[str, Any]]) -> list[str]:
    words = []
    for section, keys in data.items():
        for name, value in keys.items():
            if value is False:
                words.append(f"--no-{name.replace('_', '-')}")
                continue
            flags = next(key for key in fields(SECTIONS[section]) if key.name == name).metadata["flags"]
            text = ",".join(value) if isinstance(value, list) else str(value)
            words += [flags[0] if flags else f"--{name.replace('_', '-')}", text]
    return words


def parsed(words: list[str]) -> argparse.Namespace:
    return command_parser("compare").parse_args(words)


def test_three_spellings_are_one_spec(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(toml(FULL))
    spec = Spec.from_dict(FULL)
    assert Spec.read(file) == spec == spec_of(parsed(command_line(FULL)))
    assert spec.to_dict() == FULL


def test_flags_change_the_file(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(toml(FULL))
    spec = spec_of(parsed(["--spec", str(file), "--chunk", "1KiB", "-e", "4K"]))
    assert (spec.model.chunk, spec.model.chunks) == ("1KiB", None)
    assert spec.sizes_bytes == (1024, 4096)
    assert spec.topology == Spec.from_dict(FULL).topology


def test_the_spec_of_a_result_runs_again(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps({"weft": "0", "spec": FULL, "rows": []}))
    assert Spec.read(file) == Spec.from_dict(FULL)


def test_a_spec_is_turned_into_topology_schedules_and_model() -> None:
    spec = Spec.from_dict(FULL)
    assert spec.build_topology().shape == (4, 4)
    assert spec.build_model() == Model(
        forwarding="store-and-forward", deliver="tail", chunks=4, chunk_bytes=None, header_bytes=16,
        packet_header_bytes=2, endpoint_latency_ps=1_000_000, tie="split", discipline="priority", seed=3,
    )
    names = [(one.pattern.algorithm, one.pattern.form, one.size_bytes) for one in spec.schedules()]
    assert names == [
        *(("swing", "latency", size) for size in (1024, 4096, 16384, 65536)),
        *(("ring", "", size) for size in (1024, 4096, 16384, 65536)),
    ]


def test_a_preset_is_what_nothing_else_says() -> None:
    spec = Spec.from_dict({"topology": {"spec": "torus:4x4"}, "model": {"preset": "swing-paper"}})
    assert spec.build_model() == SWING_PAPER
    assert float(spec.build_topology().bandwidth_Bps[0]) == 5e10
    changed = spec.updated({"model": {"chunks": 2}, "topology": {"link_bandwidth": "1GB/s"}})
    assert changed.build_model().chunk_bytes is None
    assert float(changed.build_topology().bandwidth_Bps[0]) == 1e9


def test_a_preset_leaves_a_file_its_links(tmp_path: Path) -> None:
    file = tmp_path / "fabric.json"
    write_topology(torus((2, 2), bandwidth="7GB/s"), file)
    spec = Spec.from_dict({"topology": {"spec": str(file)}, "model": {"preset": "swing-paper"}})
    assert float(spec.build_topology().bandwidth_Bps[0]) == 7e9


def test_every_preset_has_links() -> None:
    assert set(PRESET_LINKS) == set(PRESETS)
    assert all(set(links) <= set(keys_of("topology")) for links in PRESET_LINKS.values())


@pytest.mark.parametrize("section", SECTIONS)
def test_an_unknown_key_is_named_with_the_accepted_ones(section: str) -> None:
    with pytest.raises(WeftError) as fault:
        Spec.from_dict({section: {"speed": 1}})
    assert "'speed'" in str(fault.value)
    assert all(key in str(fault.value) for key in keys_of(section))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"fabric": {}}, "unknown section 'fabric': accepted are topology, collective, model, sweep"),
        ({"topology": "torus:8x8"}, "give keys and values"),
        ({"topology": {"link_bandwidth": 400}}, r"\[topology\] link_bandwidth is 400: give text, with a unit"),
        ({"model": {"chunks": "four"}}, r"\[model\] chunks is 'four': give an integer"),
        ({"model": {"chunks": True}}, r"\[model\] chunks is True"),
        ({"collective": {"algorithms": []}}, "give a list of names"),
        ({"collective": {"algorithms": "swing"}}, "give a list of names"),
        ({"collective": {"algorithms": ["swingg"]}}, "algorithm 'swingg' is unknown"),
        ({"collective": {"algorithms": ["swing", "ring", "swing"]}}, "algorithm 'swing' is given twice"),
        ({"collective": {"name": "all"}}, "collective 'all' is unknown"),
        ({"collective": {"form": "best"}}, "form 'best' belongs to none of swing"),
        ({"collective": {"form": "latency", "algorithms": ["ring"]}}, "their forms are none"),
        ({"model": {"preset": "swing"}}, "preset 'swing' is unknown: choose one of swing-paper"),
        ({"model": {"engine": "quick"}}, "engine 'quick' is unknown"),
        ({"model": {"symmetry": "on"}}, "symmetry 'on' is unknown"),
        ({"sweep": {"begin": 1.5}}, r"\[sweep\] begin is 1.5"),
    ],
)
def test_a_mistake_is_told(data: dict[str, Any], message: str) -> None:
    with pytest.raises(WeftError, match=message):
        Spec.from_dict(data)


def test_a_root_is_refused_where_there_is_none() -> None:
    with pytest.raises(WeftError, match="all-reduce has no root: leave out root 1"):
        Spec.from_dict({"collective": {"root": 1}})
    assert Spec.from_dict({"collective": {"name": "reduce", "root": 1}}).options_of("tree")["root"] == 1


def test_every_algorithm_takes_the_options_that_it_knows() -> None:
    keys = {"algorithms": ["in-network", "ring"], "options": ["slots=4", "directions=1"]}
    spec = Spec.from_dict({"collective": keys})
    assert spec.options_of("in-network") == {"slots": 4, "element_bytes": 4}
    assert spec.options_of("ring") == {"directions": 1, "element_bytes": 4}
    assert Spec.from_dict(spec.to_dict()) == spec
    topology = from_spec("switch:4")
    with_slots = spec.build_schedule("in-network", topology, "1MiB")
    assert with_slots.pattern is build("in-network", "all-reduce", topology, "1MiB", slots=4).pattern
    assert spec.build_schedule("ring", topology, "1MiB").pattern.n_blocks == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["tree=2"], "option 'tree' belongs to none of in-network, swing: their options are trees, slots"),
        (["trees=2", "trees=3"], "option 'trees' is given twice: 'trees=3'"),
        (["trees"], "option 'trees': write NAME=VALUE"),
        (["=2"], "option '=2': write NAME=VALUE"),
        ("trees=2", "give a list of texts such as"),
        ([2], "give a list of texts such as"),
    ],
)
def test_options_that_are_refused(options: object, message: str) -> None:
    with pytest.raises(WeftError, match=message):
        Spec.from_dict({"collective": {"algorithms": ["in-network", "swing"], "options": options}})


def test_switches_add_up_at_a_rate() -> None:
    """Half the rate of the eight ports together takes twice as long; routers have units where there are no switches."""
    collective = {"algorithms": ["in-network"]}
    times = []
    for keys in ({}, {"aggregation_rate": "800Gb/s"}, {"aggregation_rate": "50GB/s", "aggregation_per": "port"}):
        spec = Spec.from_dict({"topology": {"spec": "switch:4"} | keys, "collective": collective})
        times.append(simulate(next(spec.schedules()), chunk="64KiB").time_s)
    assert times[1] / times[0] == pytest.approx(2, rel=0.02) and times[2] / times[0] == pytest.approx(1, rel=0.02)
    keys = {"spec": "ring:4", "aggregation_rate": "1GB/s", "aggregation_latency": "1us"}
    assert Spec.from_dict({"topology": keys}).build_topology().n_nodes == 8
    for lacking, message in (
        ({"aggregation_per": "port"}, "aggregation_per needs --aggregation-rate"),
        ({"aggregation_latency": "1us"}, "aggregation_latency needs --aggregation-rate"),
        ({"aggregation_rate": "1GB/s", "aggregation_per": "node"}, "aggregation rate per 'node' is unknown"),
        ({"aggregation_rate": "fast"}, "aggregation rate 'fast'"),
    ):
        with pytest.raises(WeftError, match=message):
            Spec.from_dict({"topology": {"spec": "switch:4"} | lacking}).build_topology()


def test_a_result_carries_its_fault_plan(tmp_path: Path) -> None:
    """Run again elsewhere, or when the file has changed, it is the same experiment."""
    file = tmp_path / "plan.toml"
    file.write_text('timeout = "5us"\n[[link-down]]\nlink = "npu0->npu1"\nat = "1us"\n')
    named = Spec.from_dict({"topology": {"spec": "ring:4"}, "model": {"faults": str(file)}})
    again = Spec.from_dict(json.loads(json.dumps(named.self_contained().to_dict())))
    assert again.build_faults() == named.build_faults()
    assert Spec.from_dict(again.to_dict()) == again and hash(again) == hash(named.self_contained())
    file.unlink()
    assert len(again.build_faults().faults) == 1  # type: ignore[union-attr]  # it has a plan, as above
    with pytest.raises(WeftError, match=r"spec: \[model\.faults\]: unknown key 'down'"):
        Spec.from_dict({"model": {"faults": {"down": 1}}})
    with pytest.raises(WeftError, match=r"\[model\] faults is 3: give the name of a file, or a table"):
        Spec.from_dict({"model": {"faults": 3}})


def test_values_of_options_are_what_they_look_like() -> None:
    words = ("4", "-1", "0.5", "1/3", "true", "none", "16,-1", "fifo", "1_000", "1/0")
    expected = [4, -1, 0.5, Fraction(1, 3), True, None, "16,-1", "fifo", "1_000", "1/0"]
    assert [parse_value(word) for word in words] == expected


def test_a_topology_must_be_given() -> None:
    with pytest.raises(WeftError, match="no topology is given"):
        Spec(topology=TopologyKeys()).build_topology()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "[topology", "is not TOML"),
        ("a.json", "{", "is not JSON"),
        ("a.json", "[1]", "is not a spec"),
        ("none/a.toml", None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_spec_is_told(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(WeftError, match=message):
        Spec.read(tmp_path / name)


@pytest.mark.parametrize(
    ("keys", "sizes"),
    [
        ({}, (2**25,)),
        ({"begin": "8"}, (8,)),
        ({"begin": 0}, (0,)),
        ({"begin": "1.5M"}, (3 * 2**19,)),
        ({"begin": "8", "end": "64"}, (8, 16, 32, 64)),
        ({"begin": "8", "end": "100", "factor": 4}, (8, 32)),
        ({"begin": "32", "end": "512M", "factor": 4}, tuple(32 * 4**k for k in range(13))),
        ({"begin": 0, "end": "3K", "step": "1K"}, (0, 1024, 2048, 3072)),
        ({"begin": "1MiB", "end": "1MiB"}, (2**20,)),
        ({"begin": 0, "end": 0}, (0,)),
    ],
)
def test_sweeps_are_those_of_nccl_tests(keys: dict[str, Any], sizes: tuple[int, ...]) -> None:
    assert sweep_sizes(SweepKeys(**keys)) == sizes


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"begin": "-5"}, "-b '-5' is negative"),
        ({"begin": "1e300GB"}, r"-b '1e300GB' is out of range: at most 1 EiB \(2\^60 B\)"),
        ({"begin": 1, "end": 2**60 + 1}, r"-e 1152921504606846977 is out of range"),
        ({"begin": "8K", "end": "4K"}, "ends at 4 KiB, before it begins at 8 KiB"),
        ({"begin": "8", "factor": 2}, "give -e"),
        ({"begin": "8", "end": "9", "factor": 2, "step": 1}, "not both"),
        ({"begin": "8", "end": "9", "factor": 1}, "does not advance"),
        ({"begin": "8", "end": "9", "step": 0}, "does not advance"),
        ({"begin": 0, "end": "9"}, "-b 0 does not advance by a factor"),
        ({"begin": 0, "end": "1G", "step": 1}, "at most 10,000"),
        ({"begin": "8X"}, "-b '8X' is not a size"),
    ],
)
def test_a_sweep_that_cannot_be_is_told(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(WeftError, match=message):
        sweep_sizes(SweepKeys(**keys))


@given(begin=st.integers(1, 2**20), factor=st.integers(2, 9), times=st.integers(0, 12), rest=st.integers(0, 10**6))
def test_a_geometric_sweep_has_every_power_up_to_its_end(begin: int, factor: int, times: int, rest: int) -> None:
    end = begin * factor**times + rest % (begin * factor**times * (factor - 1))
    sizes = sweep_sizes(SweepKeys(begin=begin, end=end, factor=factor))
    assert sizes == tuple(begin * factor**k for k in range(times + 1))
