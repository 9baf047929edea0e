"""Keys of points: one for each result, whatever the spelling."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from sim.study.key import fabric_digest, meaning, point_key, point_spec
from sim.study.points import Task
from sim.study.spec import SECTIONS, Spec
from tests.model_values import GIVEN, WHAT_IT_NEEDS
from topologies import ring, torus
from topologies.formats.exchange import write_topology

BASE: dict[str, dict[str, Any]] = {
    "topology": {"spec": "RI(4)"}, "collective": {"algorithms": ["ring"]}, "sweep": {"begin": "1K"},
}


def task(**sections: dict[str, Any]) -> Task:
    spec = Spec.from_dict({name: BASE.get(name, {}) | sections.get(name, {}) for name in {*BASE, *sections}})
    return Task(spec, spec.algorithms[0], spec.sizes_bytes[0])


@pytest.mark.parametrize(
    "spelling",
    [
        {"sweep": {"begin": 1024}},
        {"sweep": {"begin": "1K", "end": "1M", "factor": 2}},
        {"topology": {"link_bandwidth": "400Gb/s"}},
        {"topology": {"link_bandwidth": "50GB/s", "link_latency": "0.1us"}},
        {"model": {"chunks": 16, "forwarding": "cut-through", "engine": "chunk", "symmetry": "auto"}},
        {"model": {"header": "0B", "seed": 0}},
        {"collective": {"name": "all-reduce", "element_bytes": 4}},
        {"collective": {"algorithms": ["ring", "bucket"]}},
        {"collective": {"algorithms": ["ring", "in-network"], "options": ["slots=4"]}},
    ],
)
def test_other_spellings_have_the_same_key(spelling: dict[str, dict[str, Any]]) -> None:
    assert point_key(task(**spelling)) == point_key(task())


CHANGES: dict[str, Any] = {
    "topology.spec": "RI(5)", "topology.link_bandwidth": "1GB/s", "topology.link_latency": "1us",
    "topology.hop_latency": "1us", "collective.name": "all-gather", "collective.algorithms": ["bucket"],
    "collective.element_bytes": 8, "collective.options": ["directions=1"],
    "model.preset": "swing-paper", "model.engine": "reference", "model.symmetry": "off", "sweep.begin": "2K",
}


@pytest.mark.parametrize("name", CHANGES)
def test_another_experiment_has_another_key(name: str) -> None:
    section, _, key = name.partition(".")
    assert point_key(task(**{section: {key: CHANGES[name]}})) != point_key(task())


@pytest.mark.parametrize("name", ["trace_latency", "switch_latency"])
def test_other_latencies_of_a_hamming_mesh_have_another_key(name: str) -> None:
    plain = {"spec": "hx2mesh:2x2"}
    assert point_key(task(topology=plain | {name: "1us"})) != point_key(task(topology=plain))


@pytest.mark.parametrize("name", GIVEN)
def test_another_model_has_another_key(name: str) -> None:
    assert point_key(task(model=GIVEN[name])) != point_key(task(model=WHAT_IT_NEEDS[name]))


def test_options_that_are_fractions_have_a_key() -> None:
    keys = {
        point_key(task(collective={"algorithms": ["parameter-server"], "options": [f"fallback={share}"]}))
        for share in ("1/3", "2/3")
    }
    assert len(keys) == 2


def test_root_and_form_belong_to_the_key() -> None:
    tree = {"name": "broadcast", "algorithms": ["tree"]}
    keys = {point_key(task(collective=tree | {"root": root})) for root in (0, 1, 2)}
    assert len(keys) == 3
    forms = {point_key(task(topology={"spec": "torus:4x4"}, collective={"algorithms": ["swing"]} | form))
             for form in ({}, {"form": "latency"}, {"form": "bandwidth"})}
    assert len(forms) == 3


def test_every_key_of_the_model_is_accounted_for() -> None:
    """A new key of a model is resolved by `Model`, or stands for itself; here it is tried."""
    missing = {f"model.{key.name}" for key in fields(SECTIONS["model"])} - CHANGES.keys() - {"model.faults"}
    missing -= {f"model.{name}" for name in GIVEN}
    assert not missing, f"give a value that changes the result for {', '.join(sorted(missing))}"


def test_why_belongs_to_the_key_and_limits_do_not() -> None:
    plain = task()
    assert point_key(plain._replace(why=True)) != point_key(plain)
    assert point_key(plain._replace(check=True, max_events=10)) == point_key(plain)


def test_a_fabric_file_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    file = tmp_path / "net.json"
    write_topology(ring(4), file)
    first = point_key(task(topology={"spec": str(file)}))
    write_topology(ring(4, bandwidth="1GB/s"), file)
    assert point_key(task(topology={"spec": str(file)})) != first


def test_a_fault_plan_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    keys = [point_key(task())]
    for name, text in (("a", "seed = 1"), ("b", "seed = 1"), ("c", "seed = 2")):
        file = tmp_path / f"{name}.toml"
        file.write_text(text)
        keys.append(point_key(task(model={"faults": str(file)})))
    assert keys[1] == keys[2] and len(set(keys)) == 3


def test_the_digest_sees_one_link() -> None:
    fabric = torus((2, 2))
    slower = fabric.bandwidth_Bps.copy()
    slower[3] -= 1
    assert fabric_digest(fabric) == fabric_digest(torus((2, 2)))
    assert fabric_digest(fabric) != fabric_digest(fabric.with_links(bandwidth_Bps=slower))


def test_the_spec_of_a_point_is_that_point_alone() -> None:
    point = task(collective={"algorithms": ["ring", "bucket"]}, sweep={"begin": "1K", "end": "4K"})
    point = point._replace(algorithm="bucket", size_bytes=2048)
    alone = point_spec(point)
    assert alone.algorithms == ("bucket",) and alone.sizes_bytes == (2048,)
    assert meaning(Task(alone, "bucket", 2048)) == meaning(point)
