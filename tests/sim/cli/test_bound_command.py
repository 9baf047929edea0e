"""`weft bound`: exact fractions, names of the bottleneck, and what cannot be bounded."""

import json

import pytest

from sim.cli import main


def rows(capsys, *arguments):
    assert main(["bound", *arguments, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)["rows"]


@pytest.mark.parametrize(
    ("arguments", "inverse_x", "algbw"),
    [
        (("--topology", "dgx-a100:2", "--collective", "all-gather"), "3/65", 1040 / 3),
        (("--topology", "torus:4x4", "--link-bandwidth", "1GB/s", "--collective", "reduce-scatter"), "15/4", 64 / 15),
        (("--topology", "mesh:4x4", "--link-bandwidth", "1GB/s"), "10", 1.6),
        (("--topology", "torus:4x4", "--collective", "broadcast", "--root", "5"), "1/200", 200),
        (("--topology", "torus:8x8", "--link-bandwidth", "1GB/s", "--collective", "all-to-all"), "64", 1),
        (("--topology", "dgx-a100:2", "--reducing-switches"), "2/25", 200),
        (("--topology", "dgx-a100:2", "--collective", "all-to-all"), "8/25", 50),
        (("--topology", "random-regular:16x4", "--collective", "all-to-all"), "11/60", 960 / 11),
    ],
)
def test_rows(capsys, arguments, inverse_x, algbw):
    row = rows(capsys, *arguments)[0]
    assert row["inverse_x"] == inverse_x and row["algbw_GBps"] == pytest.approx(algbw)
    assert row["bottleneck"]


def test_programs_stand_beside_the_cut(capsys):
    found = rows(capsys, "--topology", "random-regular:16x4", "--link-bandwidth", "1GB/s", "--collective", "all-to-all",
                 "--program")
    assert [row["by"] for row in found] == ["cut", "linear program"]
    assert found[1]["algbw_GBps"] == pytest.approx(1.7454545)


def test_the_bottleneck_is_named_in_few_words(capsys):
    assert main(["bound", "--topology", "dgx-a100:2", "--collective", "all-gather"]) == 0
    assert "1/x = 3/65 s/GB, algbw 346.667 GB/s (15 shards must leave this set; bottleneck all but gpu" in (
        capsys.readouterr().out
    )


def test_where_switches_could_add_up_the_bound_says_that_they_do_not(capsys):
    for words, said in ((["fat-tree:4"], True), (["torus:4x4"], False), (["fat-tree:4", "--reducing-switches"], False),
                        (["fat-tree:4", "--collective", "all-to-all"], False)):
        assert main(["bound", "--topology", *words]) == 0
        assert ("switches only forward here" in capsys.readouterr().out) == said


@pytest.mark.parametrize(("kind", "slow"), [("all-gather", "up"), ("reduce-scatter", "down")])
def test_where_a_switch_copies_nothing_the_bound_of_that_stands_beside_the_cut(capsys, tmp_path, kind, slow):
    path = tmp_path / "slow.json"
    assert main(["topology", "--topology", "switch:4", "--output", str(path)]) == 0
    document = json.loads(path.read_text())
    for link in document["links" if "links" in document else "edges"]:
        if link["source" if slow == "up" else "target"] == "npu0":
            link["bandwidth_Bps"] = 49.95e9
    path.write_text(json.dumps(document))
    capsys.readouterr()
    found = rows(capsys, "--topology", str(path), "--collective", kind)
    assert [row["by"] for row in found] == ["cut", "forwarding"]
    assert [row["inverse_x"] for row in found] == ["3/50", "80/1333"]
    assert main(["bound", "--topology", str(path), "--collective", kind]) == 0
    assert ("copy nothing" if slow == "up" else "add up nothing") in capsys.readouterr().out


def test_an_all_to_all_says_whether_routes_reach_its_bound(capsys):
    for words, known in ((["dgx-a100:2"], True), (["dgx-h100:8"], False), (["dgx-h100:1"], True)):
        assert main(["bound", "--topology", *words, "--collective", "all-to-all"]) == 0
        said = capsys.readouterr().out
        assert ("a concurrent flow is as fast" in said) == known == ("--program" not in said)


@pytest.mark.parametrize(("fabric", "said"), [
    ("ocs:7x2,delay=1us", "on the circuits that are up first: others may take less"),
    ("rotor:7x2", "as if all circuits that take turns were up at once"),
])
def test_whose_bound_it_is_where_circuits_change(capsys, fabric, said):
    main(["bound", "--topology", fabric, "--collective", "all-to-all"])
    assert said in capsys.readouterr().out


def test_one_npu_has_no_limit(capsys):
    assert rows(capsys, "--topology", "ring:1", "--collective", "all-gather")[0]["algbw_GBps"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--topology", "torus:4", "--collective", "gossip"), "gossip"),
     (("--topology", "torus:4", "--collective", "broadcast", "--root", "7"), "root 7 is not one of the 4 ranks")],
)
def test_bad_input_is_one_line(capsys, arguments, message):
    assert main(["bound", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_long_fractions_are_whole_only_in_files(capsys):
    slow = "--topology", "ring:4", "--link-bandwidth", "1e-300GB/s"
    assert main(["bound", *slow]) == 0
    assert "1/x = 3e+300 s/GB" in capsys.readouterr().out
    assert len(rows(capsys, *slow)[0]["inverse_x"]) > 300


@pytest.mark.parametrize(("fabric", "algbw"), [
    (["switch:8", "--aggregation-rate", "1TB/s"], "50 GB/s"), (["dgx-h100:1"], "375.75 GB/s"),
    (["switch:8"], "28.5714 GB/s"), (["switch:8", "--aggregation-rate", "10GB/s"], "29.2857 GB/s"),
    (["dgx-h100:4"], "266.667 GB/s"),
])
def test_a_fabric_whose_switches_reduce_is_bounded_as_it_says(capsys, fabric, algbw):
    """In-network all-reduces would be faster than what switches that only forward can do at best."""
    assert main(["bound", "--topology", *fabric, "--quiet"]) in (None, 0)
    out = capsys.readouterr().out
    assert f"algbw {algbw}" in out and ("that the fabric says" in out) == (len(fabric) > 1 or "dgx" in fabric[0])
    assert main(["bound", "--topology", *fabric, "--no-reducing-switches"]) in (None, 0)
    assert "switches only forward here" in capsys.readouterr().out
