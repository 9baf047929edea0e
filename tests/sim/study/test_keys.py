"""What the keys of a spec say of names and defaults is what the packages say."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields, make_dataclass, replace
from typing import Any

import pytest

from sim.cli.commands import COMMANDS
from sim.cli.flags import accepted
from sim.papers import PAPERS
from sim.program.model import ENGINES, PRESETS, SYMMETRY, Model, Nic, make_model
from sim.program.model_options import OPTIONS
from sim.scenarios.slot_sharing import RULES as SLOT_RULES
from sim.study.keys import KINDS, SECTIONS, flags_of, keys_of, shown_default
from sim.study.spec import DEFAULT_SIZE, Spec
from tests.places import ROOT
from topologies import WeftError, from_spec
from topologies.totient_rings import RULES as RING_RULES
from topologies.units import format_rate, format_time
from workloads.training import LOOPS

NAMES = {
    "model.preset": PRESETS, "model.engine": ENGINES, "model.symmetry": SYMMETRY, "training.loop": LOOPS,
    **{f"model.{name}": row.choices for name, row in OPTIONS.items() if row.choices},
    "pool.rule": SLOT_RULES, "circuits.rule": RING_RULES, "paper.name": PAPERS,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_help_names_what_is_accepted(name: str) -> None:
    section, _, key = name.partition(".")
    assert [one for one in NAMES[name] if one not in keys_of(section)[key].metadata["help"]] == []


def test_choices_are_those_of_the_registries() -> None:
    assert keys_of("paper")["name"].metadata["choices"] == tuple(PAPERS)
    assert keys_of("circuits")["rule"].metadata["choices"] == tuple(RING_RULES)
    with pytest.raises(WeftError, match=r"\[paper\] name 'moon' is unknown: choose one of swing"):
        Spec.from_dict({"paper": {"name": "moon"}})


def test_defaults_that_a_help_shows_are_the_defaults() -> None:
    shown = {name: shown_default(key) for name, key in keys_of("model").items()}
    for name, row in OPTIONS.items():
        nic = Nic(order="fifo" if name == "nic_queue" else "rotate")
        base = Model(nic=nic) if row.field.startswith("nic.") else Model()
        if shown[name] and shown[name] not in (
            "twice the links in use at once", "one per link in use at once", "its wire and router"
        ):
            given = int(shown[name]) if row.kind in ("integer", "chunks") else shown[name]
            assert make_model(base, **{name: given}) == base
    assert (shown["engine"], shown["symmetry"]) == (Spec().engine, Spec().symmetry)
    ring, links = from_spec("ring:4"), keys_of("topology")
    assert shown_default(links["link_bandwidth"]) == "400Gb/s"
    assert format_rate(float(ring.bandwidth_Bps[0])) == "50 GB/s"
    assert shown_default(links["link_latency"]) == format_time(int(ring.latency_ps[0])).replace(" ", "")
    assert shown_default(links["hop_latency"]) == format_time(int(ring.hop_latency_ps[0])).replace(" ", "")
    assert shown_default(keys_of("sweep")["begin"]) == DEFAULT_SIZE


def test_every_key_has_a_kind_a_help_and_a_flag_of_its_own_in_each_command() -> None:
    for command in COMMANDS.values():
        used = [(section, name) for section, names in accepted(command).items() for name in names]
        flags = [flag for section, name in used for flag in flags_of(keys_of(section)[name])]
        assert len(flags) == len(set(flags))
    for kind in SECTIONS.values():
        for key in fields(kind):
            assert key.metadata["kind"] in KINDS
            assert key.metadata["help"]
            assert key.default is None or KINDS[key.metadata["kind"]].accepts(key.default)


def test_every_section_is_used_by_a_command() -> None:
    used = {section for command in COMMANDS.values() for section in accepted(command)}
    assert used == {*SECTIONS, "tenant"}


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["optimize", "--help"]])
def test_a_help_loads_no_library(words: list[str]) -> None:
    code = (
        f"import sys\nfrom sim.cli import main\ntry:\n    main({words})\nexcept SystemExit: pass\n"
        "print([name for name in ('numpy', 'numba', 'scipy', 'matplotlib', 'collectives.core', 'sim.study.spec') "
        "if name in sys.modules], file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stderr.strip() == "[]"


def test_null_is_no_value_of_a_key_that_has_a_default() -> None:
    with pytest.raises(WeftError, match=r"\[training\] in_order is None: give true or false"):
        Spec.from_dict({"training": {"in_order": None}})


def test_a_document_holds_defaults_too_and_reads_back() -> None:
    spec = Spec.from_dict({"training": {"microbatches": 4}, "tenant": [{"collective": "all-reduce"}]})
    data = spec.to_dict(("training", "tenant"))
    assert data["training"] == {
        "in_order": False, "first_layers_first": False, "updates": False, "microbatches": 4,
    }
    assert Spec.from_dict(data) == spec


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_is_what_a_frozen_dataclass_of_its_keys_would_be(name: str) -> None:
    """Equal and hashed by its keys, never changed, and without its hash in another process."""
    kind = SECTIONS[name]
    plain = make_dataclass(kind.__name__, [(one.name, Any, one.default) for one in fields(kind)], frozen=True)
    key = fields(kind)[-1].name
    one, same, other = kind(**{key: "a"}), kind(**{key: "a"}), kind(**{key: "b"})
    assert one == same != other
    assert one != plain(**{key: "a"})
    assert hash(one) == hash(one) == hash(same) == hash(plain(**{key: "a"}))
    assert replace(one, **{key: "b"}) == other
    back = pickle.loads(pickle.dumps(one))
    assert back == one
    assert not hasattr(back, "_hash"), "of text it is another one there"
    for changed in (one, plain()):
        with pytest.raises(FrozenInstanceError):
            setattr(changed, key, "c")
        with pytest.raises(FrozenInstanceError):
            delattr(changed, key)
        with pytest.raises(FrozenInstanceError):
            changed.unknown = 1
