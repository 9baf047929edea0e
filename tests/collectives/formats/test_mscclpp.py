"""Plans of MSCCL++: proved as their executor runs them, timed, and held against random executions."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from collectives import build
from collectives.core.proof import ScheduleError
from collectives.core.schedule import schedule
from collectives.formats.mscclpp import Cut, cut_of, plan_pattern, prove_plan
from collectives.formats.mscclpp_json import to_mscclpp
from collectives.formats.mscclpp_plan import Plan, parse_plan
from docs.producers import absent_of
from sim import simulate
from tests.collectives.formats.plans import GOOD, Gpu, at, direct, exchange, multicast, packets, plan, port, stages
from tests.oracles.mscclpp_executor import goes_wrong
from tests.places import SHARED
from topologies import WeftError, from_spec
from topologies.text.schema import InputNote

FILES = sorted((SHARED / "mscclpp").glob("*.json"))
SYNCS = ("nop", "signal", "wait", "rlxsignal", "rlxwait", "sem_acquire", "sem_release")


def parsed(document: dict[str, Any]) -> Plan:
    return parse_plan(json.dumps(document), "plan.json")


def verdict(document: dict[str, Any], cut: Cut | None = None, races: str = "practical") -> str:
    """What is said of a plan in a word."""
    try:
        one = parsed(document)
        prove_plan(one, cut or cut_of(one, 2**10 * one.chunks), races)
    except ScheduleError as wrong:
        said = re.search(r"hangs|races|lacks|empty|twice|more than it should|above where", str(wrong))
        return said[0] if said else str(wrong)
    except WeftError:
        return "refused"
    return ""


def lists_of(document: dict[str, Any], gpu: int) -> list[list[Any]]:
    """The lists of operations of a GPU, those of pipelines too."""
    found = [block["ops"] for block in document["gpus"][gpu]["threadblocks"]]
    return found + [op["ops"] for ops in found for op in ops if "ops" in op]


def without_one(document: dict[str, Any], gpu: int = 0, names: tuple[str, ...] = SYNCS) -> Iterator[dict[str, Any]]:
    """The same plan without one operation, for each of a GPU that has one of the names."""
    for which, ops in enumerate(lists_of(document, gpu)):
        for number, op in enumerate(ops):
            if op["name"] in names:
                changed = copy.deepcopy(document)
                del lists_of(changed, gpu)[which][number]
                yield changed


@pytest.mark.table
@pytest.mark.parametrize("name", GOOD)
def test_a_plan_is_proved_and_goes_right_in_every_order(name):
    one = parsed(GOOD[name])
    size = 2**12 * one.chunks
    pattern = plan_pattern(one, from_spec(f"switch:{len(one.gpus)}"), cut_of(one, size))
    assert pattern.proof == "proved: one symbolic run does the collective, and nothing races"
    built = schedule(pattern, size)
    result = simulate(built, check=True)
    assert result.lower_bound_ps <= result.time_ps
    assert result.time_ps == simulate(built, engine="reference").time_ps
    assert goes_wrong(GOOD[name], 20, 1) == ""


@pytest.mark.table
@pytest.mark.parametrize("name", GOOD)
def test_what_is_proved_without_an_operation_goes_right_too(name):
    wrong = Counter[str]()
    names = (*SYNCS, "flush", "barrier", "copy", "put", "upkt")
    for number, changed in enumerate(without_one(GOOD[name], names=names)):
        said, found = verdict(changed), goes_wrong(changed, 30, number)
        assert said or not found, changed
        wrong["refused" if said else "right"] += 1
        wrong["found by chance"] += bool(found)
    assert wrong["found by chance"] >= 0.5 * wrong["refused"] > 0


def test_relaxed_signals_order_data_by_default_only():
    assert verdict(direct()) == "" and verdict(direct(), races="strict") == "races"
    assert verdict(packets(), races="strict") == "" == verdict(stages(), races="strict")
    assert verdict(port(2, "pwsf"), races="strict") == ""


def test_parts_that_others_signal_race_and_are_told():
    document = exchange("res", 2)
    for part, block in enumerate(document["gpus"][1]["threadblocks"]):
        for op in block["ops"]:
            if op["name"] == "put":
                op["tbg_info"] = {"tb_id": 1 - part, "tbg_size": 2}
    assert verdict(document) == "races"
    one = parsed(document)
    pattern = plan_pattern(one, from_spec("switch:2"), cut_of(one, 2**12), "told")
    assert re.match(r"2 pairs of operations race: GPU 0, thread block 0, .*\(res\) and GPU 1, ", pattern.note)
    assert "nothing races" not in pattern.proof


def test_scratch_that_is_used_again_holds_back_what_fills_it():
    # 64 MiB of scratch in two chunks are 2^25 / unit iterations of each
    unit = 2**22
    for held, wanted in ((stages(2, unit), "races"), (stages(2, unit, init=8), ""), (stages(2, unit, init=9), "races")):
        one = parsed(held)
        assert verdict(held, cut_of(one, 2**26)) == "" and verdict(held, cut_of(one, 2**28)) == wanted
    assert cut_of(parsed(stages(2, unit)), 2**28) == Cut(20, 1, 8)


def test_a_small_array_stands_for_a_large_one():
    one = parsed(exchange("rres", 3))
    assert cut_of(one, 2 * 16 * 7) == cut_of(one, 2 * 16 * 7000) == Cut(4, 0)
    assert cut_of(one, 2 * 16) == Cut(1, 0)  # one part has all, and two have nothing
    assert all(prove_plan(one, cut_of(one, 32 * elements)) == [] for elements in range(1, 12))
    pipelined = parsed(stages(2, 64))
    assert [cut_of(pipelined, 2 * chunk) for chunk in (16, 64, 80, 2**20)] == [
        Cut(1, 4), Cut(1, 1), Cut(3, 2), Cut(4, 1)]


def test_several_blocks_on_one_end_are_in_order_only_where_they_must_be():
    def two(acquires: int) -> dict[str, Any]:
        gpus = [Gpu(0, 1, 1, 2), Gpu(1, 1, 1, 2)]
        for me, gpu in enumerate(gpus):
            gpu.semaphores = [0, 0]
            for number in (0, 1):
                block = gpu.block()
                block.do("copy", [at("i")], [at("s", number)]).do("sem_release", semaphore_ids=[0])
            block = gpu.block()
            channel = [block.channel("memory", 1 - me)]
            for _ in range(acquires):
                block.do("sem_acquire", semaphore_ids=[0])
            block.sync(("signal", "wait"), channel)
            block.do("rre", [at("s", 1), block.far(1 - me, "s", 1)], [at("o")]).sync(("signal", "wait"), channel)
            for _ in range(2 - acquires):
                block.do("sem_acquire", semaphore_ids=[0])
        return plan("allreduce", gpus)

    assert verdict(two(2)) == "" and verdict(two(1)) == "races"


def test_times_are_those_of_the_messages():
    fabric = from_spec("fc:2", bandwidth="100GB/s", latency="1us", hop_latency="0ns")
    for document, latencies, messages, share in (
        (direct(2), 3, 2, 1), (direct(2, "get"), 4, 3, 1), (port(2, "pwsf"), 2, 1, 1), (packets(), 2, 0, 4),
        (exchange("rres"), 5, 3, 2),
    ):
        one = parsed(document)
        size = 2**20 * one.chunks
        result = simulate(schedule(plan_pattern(one, fabric, cut_of(one, size)), size), chunks=1)
        # one after the other; a message without bytes takes a picosecond beside its latency
        assert result.time_ps == latencies * 10**6 + messages + share * 2**20 * 10


@pytest.mark.parametrize(("spec", "message"), [
    ("ring:4", r"is for 2 GPUs, and ring:4 has 4 NPUs"),
    ("fc:2", r"no tree of reducing switches"),
])
def test_what_does_not_fit_a_network_is_said(spec, message):
    one = parsed(stages())
    with pytest.raises(WeftError, match=message):
        plan_pattern(one, from_spec(spec), cut_of(one, 2**10))


def test_notes_say_what_the_executor_would_not_do():
    one = parsed({**port(2, "put"), "max_message_size": 2**20})
    assert one.told(2**20) == "flush is simulated as it is meant; the executor does nothing there"
    assert one.told(2**21).startswith("the executor takes arrays of 0 B to 1 MiB here; flush")
    assert parsed(direct()).told(100) == "the executor takes multiples of 48 B here"
    assert parsed(direct()).told(3 * 2**31).startswith("the executor's offsets end at 4 GiB")
    assert "get is simulated" in parsed(direct(2, "get")).told(32)


def test_keys_that_the_executor_passes_over_are_noted_once():
    document = direct(2)
    document["gpus"][0]["threadblocks"][0]["color"] = "red"
    with pytest.warns(InputNote, match="plan.json: passed over, as the executor does: color"):
        parsed(document)


@pytest.mark.parametrize("row", absent_of("microsoft/mscclpp"), ids=lambda row: row.name)
def test_an_absent_key_is_what_the_table_says(row):
    document, explicit = direct(2), direct(2)
    places = [explicit] if row.where == "plan" else [
        op for gpu in explicit["gpus"] for block in gpu["threadblocks"] for op in block["ops"] if "src_buff" in op]
    for place in places:
        assert row.name not in place or row.where == "plan"
        place[row.name] = json.loads(row.value)
    document.pop(row.name, None)
    assert places and parsed(document) == parsed(explicit)


def proved(document: dict[str, Any]) -> list[str]:
    one = parsed(document)
    return prove_plan(one, cut_of(one, 2**10))


def changed(path: str, value: Any, base: dict[str, Any] = GOOD["rres"]) -> dict[str, Any]:
    """A plan with one thing changed; `path` has dots, numbers are places in lists."""
    document = copy.deepcopy(base)
    *above, last = [int(one) if one.isdigit() else one for one in path.split(".")]
    place: Any = document
    for key in above:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return document


BLOCK = "gpus.0.threadblocks.0"
OP = f"{BLOCK}.ops"
MUTANTS = {
    "collective": "sendrecv", "protocol": "LL128", "inplace": 3, "buffer_alignment": 0, "gpus": [], "gpus.0.id": 1,
    "gpus.1": [], "gpus.0.input_chunks": 3, "gpus.1.output_chunks": -1, "gpus.0.scratch_chunks": 2**40,
    "gpus.0.threadblocks.0.id": 7, "gpus.0.threadblocks": None, "gpus.0.channels.0.channel_type": "sm",
    "gpus.0.channels.0.connected_to": [0], "gpus.0.channels.0.connected_to.0": 5, "gpus.0.channels.0": "memory",
    "gpus.0.remote_buffers.0.rank": 2, "gpus.0.remote_buffers.0.type": "x",
    "gpus.0.remote_buffers.0.access_channel_types": ["port"], "gpus.0.semaphores": [{}],
    f"{BLOCK}.channels.0.channel_ids": [3], f"{BLOCK}.remote_buffer_refs.0.remote_buffer_ids": [9],
    f"{OP}.0.name": "signl", f"{OP}.0.channel_ids": [1], f"{OP}.0.channel_ids.0": True,
    f"{OP}.0.channel_type": "switch",
    f"{OP}.0": 1, f"{OP}.4.src_buff": [], f"{OP}.4.src_buff.0.index": 2, f"{OP}.4.src_buff.0.size": 0,
    f"{OP}.4.src_buff.1.buffer_id": 4, f"{OP}.4.dst_buff.0.type": "q", f"{OP}.4.dst_buff.0": None,
    f"{OP}.4.name": "glre", f"{OP}.4.tbg_info.tb_id": 1, f"{OP}.4.channel_type": "port",
    f"{OP}.4.src_buff.1.size": 2, "name": None, f"{OP}.4.dst_buff.1.index": 1, f"{OP}.5": None, f"{OP}.8": None,
}


@pytest.mark.parametrize("path", MUTANTS)
def test_a_mutant_gives_one_clear_line(path):
    with pytest.raises(WeftError, match=r"^plan\.json") as wrong:
        proved(changed(path, MUTANTS[path]))
    assert "\n" not in str(wrong.value) and len(str(wrong.value)) < 400


@pytest.mark.parametrize(("document", "message"), [
    (changed("gpus.0.inputChunks", 2), r"older dialect of MSCCL\+\+ \(inputChunks\)"),
    (changed("gpus.0.channels.2.buffer_type", None, GOOD["stages"]), r"dialect .*switch channel without buffer_type"),
    (changed(f"{OP}.0", {"name": "pws", "channel_type": "memory", "src_buff": [at("i")], "dst_buff": [
        {"buffer_id": 0, "index": 0, "size": 1}]}), r"operation 0 \(pws\) on a memory channel does not signal"),
    (changed(OP, [{"name": "nop"}] * 65), r"has 65 operations, those of pipelines too: the executor has room for 64"),
    (changed("protocol", "Simple", GOOD["respkt"]), r"\(ppkt\) handles packets, which are in scratch of plans of"),
    (changed("use_double_scratch_buffer", False, GOOD["respkt"]), r"races: .*packets need use_double_scratch_buffer"),
    (changed(f"{OP}.0.iter_context.num_chunks", 4, GOOD["stages"]), r"iterations of its pipeline beyond its range"),
    (changed("gpus.0.threadblocks.1.ops.0.num_threadblocks", 3, GOOD["barrier"]),
     r"hangs: 2 thread blocks of GPU 0 meet at barrier 0, and .*, operation 0 \(barrier\) waits for 3"),
])
def test_what_the_executor_would_not_do_is_named(document, message):
    with pytest.raises(WeftError, match=message):
        proved(document)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_public_plans_are_proved_and_timed(path):
    if path.name == "allreduce_pipeline.json":
        with pytest.raises(WeftError, match="is a plan of an older dialect"):
            parse_plan(path.read_text(), path.name)
        return
    one = parse_plan(path.read_text(), path.name)
    races = prove_plan(one, cut_of(one, 2**20), "told")
    assert len(races) == (3 if path.name == "reduce_tbg.json" else 0)
    built = build(str(path), one.kind, from_spec(f"switch:{len(one.gpus)}"), "1MiB", races="told")
    result = simulate(built, check=True)
    assert result.lower_bound_ps <= result.time_ps


NEEDED = {"allreduce.json": ((0,), {"races": 32, "hangs": 16}),
          "gen_allreduce_pipeline.json": ((0, 1), {"races": 16, "hangs": 8, "": 12})}


@pytest.mark.parametrize("path", [path for path in FILES if path.name in NEEDED], ids=lambda path: path.name)
def test_operations_that_public_plans_need_are_missed(path):
    gpus, wanted = NEEDED[path.name]
    document = json.loads(path.read_text())
    assert Counter(verdict(one) for gpu in gpus for one in without_one(document, gpu)) == wanted


def test_a_file_is_an_algorithm(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(direct()))
    built = build(str(path), "all-gather", from_spec("fc:3"), "3KiB")
    assert built.name == "mine.json (ours)" and np.all(simulate(built).time_ps > 0)
    with pytest.raises(WeftError, match="races 'never' is unknown: choose one of practical, strict, told"):
        build(str(path), "all-gather", from_spec("fc:3"), "3KiB", races="never")
    path.write_text("{}")
    with pytest.raises(WeftError, match=r"mine\.json lacks 'gpus'"):
        build(str(path), "all-gather", from_spec("fc:3"), "3KiB")


def test_only_what_a_switch_reduces_or_multicasts_takes_its_rate(tmp_path):
    fabric, path = from_spec("dgx-h100:1"), tmp_path / "mine.json"
    for document, wanted in ((direct(8), fabric), (multicast(8), fabric.as_it_reduces())):
        path.write_text(json.dumps(document))
        built = build(str(path), "all-gather", fabric, "8KiB")
        assert np.array_equal(built.pattern.topology.bandwidth_Bps, wanted.bandwidth_Bps)
        assert (built.pattern.n_sources is None) == (wanted is fabric)


@pytest.mark.table
@pytest.mark.parametrize(("name", "kind", "spec", "form"), [
    ("ring", "all-gather", "ring:4", None), ("ring", "reduce-scatter", "ring:4", None),
    ("direct", "all-reduce", "switch:4", None), ("direct", "all-to-all", "switch:4", None),
    ("recursive-doubling", "all-reduce", "switch:4", "latency"), ("swing", "all-reduce", "torus:2x2", "bandwidth"),
    ("bruck", "all-to-all", "switch:4", None), ("pipelined", "all-reduce", "ring:5", "two-phase"),
    ("double-binary-tree", "all-reduce", "switch:5", None), ("tacos", "all-reduce", "mesh:2x3", None),
])
def test_any_algorithm_is_written_and_goes_right_in_every_order(name, kind, spec, form):
    given = build(name, kind, from_spec(spec), "16MiB", form)
    text = to_mscclpp(given)
    one = parse_plan(text, "plan.json")
    assert goes_wrong(json.loads(text), 10, 1) == ""
    read = schedule(plan_pattern(one, given.topology, cut_of(one, given.size_bytes)), given.size_bytes)
    assert read.kind.name == kind
    assert simulate(read, chunks=16).time_ps <= 1.03 * simulate(given, chunks=16).time_ps
    assert not strictly(one, given.size_bytes)


def strictly(one: Plan, size_bytes: int) -> list[str]:
    """Races where relaxed signals order no data: there are none of these."""
    return prove_plan(one, cut_of(one, size_bytes), "strict")


def test_what_no_plan_can_hold_is_refused():
    with pytest.raises(WeftError, match="no plan is a broadcast: choose one of all-gather, all-reduce"):
        to_mscclpp(build("tree", "broadcast", from_spec("ring:4"), "1MiB", "binomial"))
    with pytest.raises(WeftError, match="109 peers of a rank, and 108 thread blocks are the most"):
        to_mscclpp(build("direct", "all-gather", from_spec("switch:110"), "1MiB"))
