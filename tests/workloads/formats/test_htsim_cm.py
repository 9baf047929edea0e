"""Connection matrices of htsim: flows, starts and triggers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collectives import build
from collectives.formats.htsim import to_htsim
from docs.producers import absent_of
from sim import simulate
from sim.cli import main
from sim.program.model import Model
from topologies import WeftError, from_spec, switch
from topologies.text.schema import Absent
from workloads.formats.htsim_cm import open_matrix

ONE = Model(chunks=1)
CHAIN = """# three flows
Nodes 4
Connections 3
Triggers 2
0->1 id 1 start 5000000 size 1000 send_done_trigger 1
1->2 id 2 trigger 1 size 1000 recv_done_trigger 2
2->3 id 3 trigger 2 size 1000 prio 7
trigger id 1 oneshot
trigger id 2 barrier count 1
"""


def time_us(folder: Path, text: str) -> float:
    path = folder / "a.cm"
    path.write_text(text, encoding="utf-8")
    return simulate(open_matrix(str(path), switch(4))[0], model=ONE).time_ps / 1e6


def test_flows_start_at_their_time_and_behind_each_other(tmp_path: Path) -> None:
    alone = time_us(tmp_path, "Nodes 4\nConnections 1\n0->1 start 0.000000 size 1000\n")
    assert time_us(tmp_path, CHAIN) == pytest.approx(5 + 3 * alone)
    both = "Nodes 4\nConnections 2\n0->1 start 2000000 size 1000\n0->2 start 9000000 size 1000\n"
    assert time_us(tmp_path, both) == pytest.approx(9 + alone)
    (tmp_path / "a.cm").write_text(CHAIN)
    assert open_matrix(str(tmp_path / "a.cm"), switch(4))[1] == [
        "prio of flows is passed over: it is of htsim's transports"]


def test_messages_of_a_connection_are_flows(tmp_path: Path) -> None:
    """As uet-htsim has them, with a number or without."""
    rows = "0->1 id 1{} start 0 size 40860\n" * 2
    plain = time_us(tmp_path, f"Nodes 2\nConnections 2\n{rows.format('', '')}")
    assert time_us(tmp_path, f"Nodes 2\nConnections 2\n{rows.format(' msg', ' msg 3')}") == plain
    assert open_matrix(str(tmp_path / "a.cm"), switch(4))[1] == [
        "msg of flows is passed over: it is of htsim's transports"]


@pytest.mark.parametrize(("spec", "algorithm", "kind"), [
    ("switch:4", "ring", "all-reduce"), ("switch:8", "recursive-doubling", "all-gather"), ("torus:2x4", "swing",
     "all-reduce"), ("switch:5", "pairwise", "all-to-all")])
def test_a_schedule_comes_back_at_its_own_time(spec: str, algorithm: str, kind: str, tmp_path: Path) -> None:
    topology = from_spec(spec)
    schedule = build(algorithm, kind, topology, "64KiB")
    path = tmp_path / "a.cm"
    path.write_text(to_htsim(schedule))
    job, _ = open_matrix(str(path), topology)
    model = Model(chunks=1, rank_progress="free")
    assert simulate(job, model=model).time_ps == simulate(schedule, model=model).time_ps


@pytest.mark.parametrize("row", absent_of("Broadcom csg-htsim, uet-htsim"), ids=lambda row: row.name)
def test_absent_equals_explicit(row: Absent, tmp_path: Path) -> None:
    explicit = re.sub(r"(2->3 id 3 trigger 2 size 1000)[^\n]*", rf"\1 {row.name} {row.value}", CHAIN)
    absent = re.sub(r"(2->3 id 3 trigger 2 size 1000)[^\n]*", r"\1", CHAIN)
    assert explicit != absent and time_us(tmp_path, explicit) == time_us(tmp_path, absent)


@pytest.mark.parametrize(("old", "new", "why"), [
    ("Nodes 4", "Nodes 9", "has 9 nodes, and the network only 4"), ("Connections 3", "Connections 2", "says 2 connect"),
    ("0->1", "0->7", "'0->7' is no flow between"), ("size 1000 prio", "size 0 prio", "size 0 has no end"),
    ("start 5000000 ", "", "either a start or a trigger"), ("prio 7", "addon 7", "'addon' is not read"),
    ("prio 7", "prio", "'prio' is not read"), ("oneshot", "barrier count 3", "is fired by 1 flows: 3 are expected"),
    ("trigger id 1 oneshot\n", "", "trigger 1 .not defined."), ("id 2 barrier count 1", "id 2", "a trigger is one of"),
    ("start 5000000", "trigger 2", "in a cycle of triggers"), ("size 1000 prio", "size x prio", "size is 'x'"),
    ("trigger id 1", "failure id 1", "give --faults FILE"), ("# three", "three", "is neither a flow"),
])
def test_what_is_wrong_is_one_line(old: str, new: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(WeftError, match=why) as wrong:
        time_us(tmp_path, CHAIN.replace(old, new, 1))
    assert "\n" not in str(wrong.value)


def test_multishot_of_several_depends_on_the_run(tmp_path: Path) -> None:
    text = CHAIN.replace("oneshot", "multishot")
    assert time_us(tmp_path, text) == time_us(tmp_path, CHAIN)
    more = text.replace("Connections 3", "Connections 4") + "3->0 id 4 trigger 1 size 9\n"
    with pytest.raises(WeftError, match="starts one of 2 flows at a time"):
        time_us(tmp_path, more)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.cm"
    path.write_text(CHAIN)
    assert main(["trace", "--topology", "switch:4", "--workload", str(path)]) == 0
    assert "Host 3:" in capsys.readouterr().out
    assert main(["compare", "--topology", "switch:4", "--workload", str(path), "--algorithms", "ring"]) == 2
    assert "a connection matrix has messages" in capsys.readouterr().err
    assert main(["topology", "--topology", str(path)]) == 2
    assert "flows, and no network: give it as --workload" in capsys.readouterr().err
