"""Input that ended in a traceback, or was taken for what it is not: one line each."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from collectives import build, swing
from sim import simulate
from sim.analytic.constraints import parse_constraint
from sim.cli import main
from sim.faults import apply, history
from sim.faults.plan import FaultPlan, LinkDown, Repair
from sim.study.store import Finished, Store
from sim.study.tables import from_csv, to_csv
from tests.places import ROOT
from topologies import WeftError, from_spec, ring
from topologies.core import extents
from workloads import schedule_to_chakra, write_trace


@pytest.mark.parametrize("rate", ["1b/s", "7b/s", "0.3B/s"])
def test_a_search_takes_rates_below_a_byte_a_second(rate):
    assert build("tacos", "all-gather", ring(4, bandwidth=rate), "1KiB").proof == "proved"


def test_a_node_of_an_unknown_kind_is_named():
    trace = schedule_to_chakra(swing.all_reduce(ring(4), 4096))[0]
    wrong = trace._replace(nodes=(trace.nodes[0]._replace(kind="sned"),))
    with pytest.raises(WeftError, match=r"node 0: kind 'sned' is unknown: .* \(did you mean send\?\)"):
        write_trace(wrong)


@pytest.mark.parametrize("bound", ["nan", "inf", "-inf"])
def test_a_constraint_has_a_finite_bound(bound):
    with pytest.raises(WeftError, match="neither a dimension"):
        parse_constraint(f"B1 >= {bound}", 2)


def test_a_budget_in_dollars_is_finite(capsys):
    words = ["optimize", "--network", "RI(2)_SW(2)", "--workload", "ncf", "--budget", "100GB/s", "--budget-cost", "nan"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "budget" in error


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1"])
def test_no_cell_of_a_table_is_a_formula(text):
    assert to_csv([{"name": text, "number": -1.5}]).splitlines()[1].strip('"').startswith("'")
    assert to_csv([{"name": text, "number": -1.5}]).endswith(",-1.5\n")


def test_texts_in_csv_come_back_as_they_were():
    texts = [sign + text for sign in ("", "=", "+", "-", "@", "\t", "\r", "'", "'=", "''-", "'a", "=\n", 'a,"b"\r\n')
             for text in ("", "1+1", "SUM(A1)", "'", "é")]
    assert [row["name"] for row in from_csv(to_csv([{"name": text, "number": -1} for text in texts]))] == texts


def test_the_limits_of_a_container_and_of_the_shell_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "none").write_text("max\n")
    (tmp_path / "some").write_text("4096\n")  # of its own: what a file says is asked once a process
    monkeypatch.setattr(extents, "CGROUP_LIMITS", (str(tmp_path / "none"), str(tmp_path / "absent")))
    whole = extents.physical_memory()
    monkeypatch.setattr(extents, "CGROUP_LIMITS", (str(tmp_path / "absent"), str(tmp_path / "some")))
    assert extents.physical_memory() == 4096 < whole
    with pytest.raises(WeftError, match=r"the limit is 2\.666 KiB, two thirds"):
        ring(1000)
    monkeypatch.setattr(extents, "CGROUP_LIMITS", (str(tmp_path / "none"),))
    monkeypatch.setattr(resource, "getrlimit", lambda which: (8192, 8192))
    assert extents.physical_memory() == 8192


@pytest.mark.parametrize("column", ["row", "spec"])
@pytest.mark.parametrize("text", ["3", "[1]", '"a"', "null", "{", ""])
def test_a_stored_point_is_an_object(tmp_path: Path, column: str, text: str):
    with Store(tmp_path / "a.db") as store:
        store.add(Finished("0" * 32, {}, {}, None, 0.5, "0"))
    database = sqlite3.connect(tmp_path / "a.db")
    with database:
        database.execute(f"UPDATE point SET {column} = ?", (text,))
    database.close()
    with Store(tmp_path / "a.db") as store, pytest.raises(WeftError, match=f"point '0+': its {column} is "):
        store.get("0" * 32)


def test_a_store_is_no_pipe(tmp_path: Path):
    os.mkfifo(tmp_path / "a.db")
    with pytest.raises(WeftError, match="a pipe or a device"):
        Store(tmp_path / "a.db")


@pytest.mark.parametrize(("read_only", "patience"), [(True, "READ_SECONDS"), (False, "LOCK_SECONDS")])
def test_waiting_for_a_locked_store_is_told_and_ends(
    read_only: bool, patience: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """By a clock that only sleeps move: a second of waiting is told of, once, and patience is exact."""
    now, told = [0.0], []

    def pass_time(seconds: float) -> None:
        now[0] += 0.1

    monkeypatch.setattr("sim.study.store.TRY_SECONDS", 0.0)
    monkeypatch.setattr("sim.study.store.monotonic", lambda: now[0])
    monkeypatch.setattr("sim.study.store.sleep", pass_time)
    Store(tmp_path / "a.db").close()
    database = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    database.execute("BEGIN EXCLUSIVE")
    begin, limit_s = now[0], {"READ_SECONDS": 2.0, "LOCK_SECONDS": 60.0}[patience]
    with pytest.raises(WeftError, match=f"database is locked by another process, and {limit_s:g} s were not enough"):
        Store(tmp_path / "a.db", read_only=read_only, tell=told.append)
    assert limit_s <= now[0] - begin < limit_s + 0.2
    assert told == [f"store {tmp_path / 'a.db'} is locked by another process: waiting up to {limit_s:g} s"]
    database.execute("COMMIT")
    database.close()
    Store(tmp_path / "a.db", read_only=read_only, tell=told.append).close()
    assert len(told) == 1


def test_a_store_that_is_unlocked_in_time_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    Store(tmp_path / "a.db").close()
    database = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    database.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr("sim.study.store.TRY_SECONDS", 0.0)
    monkeypatch.setattr("sim.study.store.sleep", lambda seconds: database.in_transaction and database.rollback())
    with Store(tmp_path / "a.db") as store:
        assert len(store) == 0
    database.close()


@pytest.mark.parametrize(("spec", "n_links"), [("random-regular:100x99", 9900), ("random-regular:60x57", 60 * 57)])
def test_dense_random_networks_are_drawn(spec: str, n_links: int):
    network = from_spec(spec)
    pairs = set(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    assert network.n_links == n_links == len(pairs)
    assert {sum(src == npu for src, _ in pairs) for npu in range(network.n_npus)} == {n_links // network.n_npus}
    assert all(src != dst and (dst, src) in pairs for src, dst in pairs)


def test_what_takes_too_long_to_build_is_refused():
    with pytest.raises(WeftError, match="999,000 cable ends: at most 200,000"):
        from_spec("random-regular:1000x999")
    with pytest.raises(WeftError, match=r"65,536 that arrive there, up to 4,294,967,296 waits"):
        build("in-network", "all-reduce", from_spec("switch:65536"), "1MiB")


def test_what_flaps_is_routed_around_once(monkeypatch: pytest.MonkeyPatch):
    """Once for every set of links that are down, however often it comes back."""
    made: list[str] = []
    for where, name in ((apply, "_ways"), (history, "History")):
        real = getattr(where, name)
        monkeypatch.setattr(where, name, lambda *given, name=name, real=real: made.append(name) or real(*given))
    flaps = [kind(link="npu0->npu1", at=f"{10 * at + late}ns") for at in range(50)
             for kind, late in ((LinkDown, 1), (Repair, 5))]
    plan = FaultPlan(faults=tuple(flaps), reroute="1ns")
    simulate(build("ring", "all-reduce", ring(8), "64KiB"), faults=plan)
    assert (made.count("_ways"), made.count("History")) == (2, 1)


STARTED = """
import sys
class Interrupt:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            {what}
sys.meta_path.insert(0, Interrupt())
from sim.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("called", ["sim.cli.main", "sim.study.processes.threading.Thread"])
def test_warnings_of_libraries_do_not_reach_users(called: str):
    """Neither from a command nor from its workers."""
    code = (
        "import numpy, sys, sim.cli, sim.study.processes\nfrom sim.__main__ import main\n"
        "def compute(**named): numpy.zeros(1) / numpy.zeros(1); sys.exit(3)\n"
        f"{called} = compute\nsim.study.processes.begin_worker() if 'Thread' in '{called}' else main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, text=True,
                           check=False)
    assert (ended.returncode, ended.stderr) == (3, "")


@pytest.mark.parametrize("size", [0, -1, "0B"])
def test_a_chunk_has_a_byte(size: int | str):
    """One name and one limit, of numbers and of text."""
    with pytest.raises(WeftError, match=r"^chunk (is (0|-1): give an integer from 1|'0B' is less than 1B)"):
        simulate(build("ring", "all-reduce", ring(4), "1KiB"), chunk=size)


@pytest.mark.parametrize("module", ["sim.cli", "sim.cli.commands"])
@pytest.mark.parametrize(("what", "code", "said"), [
    ("raise KeyboardInterrupt", 128 + signal.SIGINT, "weft: interrupted, nothing was written\n"),
    ("raise ModuleNotFoundError(name='matplotlib.pyplot')", 2,
     "weft: this needs weft[plot]: matplotlib is not installed (pip install matplotlib)\n"),
])
def test_the_first_moments_end_in_one_line(what: str, code: int, said: str, module: str):
    """Also while the command line itself is imported."""
    words = [sys.executable, "-c", STARTED.format(what=what, module=module)]
    ended = subprocess.run(words, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", said)


@pytest.mark.parametrize("name", ["a\x1b[31m", "a\x9b31m", "a\nb", "a\u202eb"])
def test_names_that_a_terminal_would_obey_are_rejected(name: str, tmp_path: Path) -> None:
    """Those of nodes with their file; of topologies, algorithms and forms where they are made."""
    file = tmp_path / "fabric.json"
    nodes = [{"id": node, "kind": "npu", "rank": rank} for rank, node in enumerate((name, "b"))]
    ends = (name, "b"), ("b", name)
    edges = [{"source": one, "target": other, "bandwidth_Bps": 1e9, "latency_s": 0} for one, other in ends]
    file.write_text(json.dumps({"directed": True, "multigraph": False, "graph": {}, "nodes": nodes, "edges": edges}))
    with pytest.raises(WeftError, match=r"topology .*fabric.json: .*a.* control characters"):
        from_spec(str(file))
    with pytest.raises(WeftError, match=r"name is .*: give text without control characters"):
        replace(ring(3), name=name)
    pattern = swing.all_reduce(ring(4), 4096).pattern
    for key in ("algorithm", "form"):
        with pytest.raises(WeftError, match=rf"{key} is .*: give text without control characters"):
            replace(pattern, **{key: name})


def test_names_of_files_are_printed_without_what_a_terminal_would_obey(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "a\x1b[31m.txt"
    table.write_text((ROOT / "examples" / "nccl.txt").read_text())
    assert main(["judge", str(table), "--topology", "switch:16", "--quiet"]) == 0
    said = capsys.readouterr()
    assert "\\x1b[31m.txt" in said.out
    assert "\x1b" not in said.out + said.err
