import json

import pytest

from sim.cli import main, topoopt
from sim.scenarios import topoopt_search


def test_topoopt(capsys):
    assert main(["topoopt", "--workload", "VGG16", "--servers", "8", "--degree", "2"]) == 0
    out = capsys.readouterr().out
    assert "VGG16 on 8 servers of 2 interfaces: circulant:8x1" in out and "+1, +7" in out


def test_topoopt_json_and_search(capsys):
    command = ["topoopt", "--workload", "DLRM", "--servers", "4", "--simplex", "--degree", "3", "--budget", "5"]
    assert main([*command, "--json", "-"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["time_s"] <= row["start_s"] and row["evaluations"] >= 1 and row["degree"] == 3


def test_reconfigure(capsys, tmp_path):
    file = tmp_path / "plans.json"
    words = ["reconfigure", "--topology", "ocs:8x2,delay=1us", "--algorithms", "swing,totient-rings", "-b", "64K"]
    assert main([*words, "--json", str(file)]) == 0
    rows = {row["policy"]: row for row in json.loads(file.read_text())["rows"]}
    assert set(rows) == {"static", "every step", "planned", "best"}
    assert rows["best"]["simulated_s"] == min(row["simulated_s"] for row in rows.values())
    assert all(row["over_bound"] >= 0 for row in rows.values())
    out = capsys.readouterr().out
    assert "bound" in out and "critical path of the best" in out
    late = tmp_path / "late.toml"
    late.write_text('[[straggler]]\nnpu = "npu1"\ndelay = "9us"\n', encoding="utf-8")
    assert main([*words, "--faults", str(late), "--json", str(file)]) == 0
    for row in json.loads(file.read_text())["rows"]:
        assert row["simulated_s"] >= max(9e-6, rows[row["policy"]]["simulated_s"])


@pytest.mark.parametrize("fault", [
    '[[slow-link]]\nlink = "npu0->npu1"\nshare = 0.1', '[[link-down]]\nlink = "npu0--npu1"',
])
def test_plans_are_made_for_faults(fault, tmp_path):
    """Without, 65.2 us: a matching over the slow circuit; or none that ends, nor any circuits that stay."""
    faults, file = tmp_path / "faults.toml", tmp_path / "rows.json"
    faults.write_text(fault, encoding="utf-8")
    words = ["--topology", "ocs:4x1,delay=1us", "--collective", "all-to-all", "--algorithms", "direct", "-b", "1M"]
    for command, key in (("reconfigure", "simulated_s"), ("compare", "time_s")):
        assert main([command, *words, "--faults", str(faults), "--json", str(file), "--quiet"]) == 0
        rows = json.loads(file.read_text())["rows"]
        assert rows[-1][key] == min(row[key] for row in rows) == pytest.approx(23.27e-6, rel=1e-3)


def test_a_rotor_is_optimized_and_judged_as_it_is_compared(capsys, tmp_path):
    words, file = ["--topology", "rotor:5x2", "--algorithm", "ring", "--chunks", "4"], tmp_path / "times.json"
    assert main(["compare", *words, "-b", "1K", "-e", "64K", "-f", "4", "--json", str(file), "--quiet"]) == 0
    assert main(["judge", str(file), *words, "--json", "-"]) == 0
    assert '"verdict": "good"' in (judged := capsys.readouterr().out) or '"verdict": "too-small"' in judged
    times = [row["time_s"] for row in json.loads(file.read_text())["rows"]]
    split = ["--collective", "all-reduce", "-b", "64K", "--budget", "100GB/s", "--json", "-"]
    assert main(["optimize", *words, *split]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]  # two ports of 400 Gb/s
    assert row["time_s"] == pytest.approx(times[-1], rel=1e-9)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["topoopt", "--degree", "3"], "3 duplex interfaces: a ring takes two of each server"),
        (["topoopt", "--link-bandwidth", "100"], "bandwidth '100' is not a rate"),
        (["topoopt", "--workload", "GPT"], "model 'GPT' is unknown"),
        (["topoopt", "--servers", "1"], "on 1 server: at least 2"),
        (["reconfigure", "--topology", "ocs:4x2,delay=10"], "reconfiguration delay '10' is not a time"),
        (["reconfigure", "--topology", "ring:8", "--algorithm", "swing"], "ring:8 has no circuits to switch"),
        (["reconfigure", "--topology", "ocs:4"], "write SERVERSxPORTS, such as ocs:16x4"),
        (["reconfigure", "--topology", "ocs:4x2,slow"], "option 'slow' is unknown: choose among duplex, per-port"),
        (["reconfigure", "--topology", "ocs:4x2,circuits=3x3"], "circuits '3x3' join 9 servers, not 4"),
        (["reconfigure", "--topology", "ocs:16x2,circuits=4x4"], "circuits '4x4' take 4 of the 2 ports"),
        (["compare", "--topology", "rotor:4x1", "--algorithm", "ring", "-b", "1M", "--engine", "analytic"],
         "the analytic engine on rotor:4x1: it knows no turns"),
        (["train", "--topology", "ocs:4x2,circuits=2x2,policy=demand", "--npu-bandwidth", "9GB/s,8GB/s", "--model",
          "gpt-1.7b", "--device", "h100"], "NPU bandwidth has 2 values; give one"),
        (["compare", "--topology", "ocs:7x3", "--algorithm", "bfb"], "npu0->npu1 has none back"),
        (["schedule", "--topology", "ocs:3x1", "--algorithm", "parameter-server", "--ocs-plan", "-"],
         "1 to 0 takes 2 circuits"),
        (["compare", "--topology", "hybrid:5x2,circuits=ring"], "full, a torus such as 4x4 (did you mean rings?)"),
        (["compare", "--topology", "ocs:5x2,duplex,circuits=kautz"], "'kautz' lead one way, and take at least 2"),
        (["bound", "--topology", "ocs:3x1,circuits=kautz"], "'kautz' lead one way, and take at least 2 simplex"),
        (["topoopt", "--degree", "0"], "0 duplex interfaces: a ring takes two of each server: an even degree from 2"),
        (["reconfigure", "--topology", "ocs:4x1,duplex"], "joins 4 servers in pairs only"),
    ],
)
def test_bad_input_is_one_line(capsys, command, message):
    assert main(command) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("servers", [100_000, 10**12])
def test_servers_that_do_not_fit_in_memory_are_refused_before_work(servers, capsys, monkeypatch):
    monkeypatch.setattr(topoopt_search, "physical_memory", lambda: 2.0**36)
    monkeypatch.setattr(topoopt, "model", None)
    assert main(["topoopt", "--servers", str(servers)]) == 2
    error = capsys.readouterr().err
    assert f"circuits for {servers} servers: " in error and error.count("\n") == 1
    assert error.endswith("at most half of the 64 GiB of this machine\n")


@pytest.mark.parametrize("algorithm", ["hierarchical", "themis", "swing", "direct"])
@pytest.mark.parametrize("kind", ["all-gather", "all-reduce"])
def test_every_algorithm_in_steps_may_switch_circuits(algorithm, kind, capsys):
    """Or is rejected in one line: those with pools of active chunks ended in a traceback."""
    words = ["reconfigure", "--topology", "ocs:4x2,delay=1us", "--collective", kind, "--algorithm", algorithm]
    code = main([*words, "--size", "1KiB"])
    said = capsys.readouterr()
    assert (code == 0 and "bound" in said.out) or (code == 2 and said.err.count("\n") == 1)


COMMANDS = {
    "compare": ["--algorithms", "direct,pat", "--collective", "all-gather", "-b", "64K"],
    "validate": ["--algorithm", "direct", "--collective", "all-gather", "-b", "64K"],
    "trace": ["--algorithm", "direct", "--collective", "all-gather", "-b", "64K"],
    "reconfigure": ["--algorithms", "direct", "--collective", "all-gather", "-b", "64K"],
    "share": ["--tenant", "collective=all-gather algorithm=ring size=64KiB npus=0-1",
              "--tenant", "collective=all-gather algorithm=ring size=64KiB npus=2-3"],
    "train": ["--inline", "--model", "gpt-1.7b", "--device", "h100", "--tp", "2", "--sequence", "64",
              "--global-batch"],
    "bound": ["--collective", "all-gather"],
    "optimize": ["--algorithms", "direct", "--collective", "all-gather", "-b", "64K", "--budget", "9GB/s", "--chunks",
                 "1"],
}


@pytest.mark.table
@pytest.mark.parametrize("fabric", [
    "ocs:4x2", "patch-panel:4x1,look-ahead", "hybrid:4x1,delay=1us", "hybrid:4x2,per-port,policy=demand",
    "rails:2x2,policy=provisioned", "rotor:4x1,dwell=20ms", "pod:4x4x4",
])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_every_optical_fabric(command, fabric, capsys):
    words = [*COMMANDS[command], *["32" if fabric.startswith("pod") else "2"] * (command == "train")]
    assert main([command, "--topology", fabric, *words, "--quiet"]) == 0
    assert fabric in capsys.readouterr().out


def test_a_sweep_goes_over_optical_fabrics(tmp_path, capsys):
    specs = ["hybrid:4x1", "rails:2x2", "rotor:4x1", "ocs:4x2"]
    spec = tmp_path / "sweep.toml"
    spec.write_text(f"""
[topology]
spec = {json.dumps(specs)}
[collective]
name = "all-to-all"
algorithms = ["direct"]
[sweep]
begin = "64KiB"
""")
    assert main(["sweep", str(spec), "--export", str(tmp_path / "rows.csv")]) == 0
    rows = (tmp_path / "rows.csv").read_text()
    assert all(one in rows for one in specs)
