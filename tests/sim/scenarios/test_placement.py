"""Tenants that are placed: beside plain searches, and a plain queue."""

import json
import random
from collections import Counter, deque
from fractions import Fraction

import pytest

from collectives import build
from sim import simulate
from sim.cli import main
from sim.lower.tenants import Tenant
from sim.program.model import Model
from sim.scenarios.placement import Wanted, choose, fragmentation, fragments, placed, spread
from sim.scenarios.tenants import ends_ps
from topologies import from_spec
from topologies.units import parse_time
from workloads.group_collectives import among

FABRICS = ("ring:9", "torus:3x5", "mesh:2x3", "switch:7", "fat-tree:4", "ocs:6x2", "pod:4x4x4")


def links(fabric, root, onward):
    """Links from or to a node, by a plain search."""
    near = {root: 0}
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for a, b in zip(fabric.src.tolist(), fabric.dst.tolist(), strict=True):
            here, there = (a, b) if onward else (b, a)
            if here == node and there not in near:
                near[there] = near[node] + 1
                queue.append(there)
    return near


def plain_sets(fabric, free, count):
    away = {a: {b: out[b] + back[b] for b in range(fabric.n_npus)} for a in range(fabric.n_npus)
            for out, back in [(links(fabric, a, True), links(fabric, a, False))]}
    found = []
    for first in free:
        taken = [first]
        while len(taken) < count:
            rest = [npu for npu in free if npu not in taken]
            taken.append(min(rest, key=lambda npu: (sum(away[npu][one] for one in taken), npu)))
        inside = sum(away[a][b] for a in taken for b in taken if a < b)
        found.append((inside, -sum(away[a][b] for a in taken for b in free), tuple(sorted(taken))))
    return found


@pytest.mark.parametrize("spec", FABRICS[:-1])
def test_packed_is_the_plain_search(spec):
    fabric, rng = from_spec(spec), random.Random(spec)
    for _ in range(4):
        free = sorted(rng.sample(range(fabric.n_npus), rng.randint(2, fabric.n_npus)))
        count = rng.randint(1, len(free))
        expected = min(plain_sets(fabric, free, count))
        assert choose("packed", fabric, free, count, [], rng) == expected[-1]
        best = min(plain_sets(fabric, range(fabric.n_npus), count))[0]
        assert spread(fabric, expected[-1]) == (expected[0] / best if best else 1)
        assert set(choose("random", fabric, free, count, [], rng)) <= set(free)


def test_contention_counts_routes_on_shared_links():
    fabric, rng = from_spec("ring:9"), random.Random(5)  # whose shortest routes are unique

    def crossed(a, b):
        count, step = Counter(), 1 if (b - a) % 9 <= 4 else -1
        while a != b:
            count[a, (a + step) % 9] += 1
            a = (a + step) % 9
        return count

    def routes(npus):
        return sum((crossed(a, b) for a in npus for b in npus), Counter())

    for _ in range(12):
        order = rng.sample(range(9), 9)
        others = [tuple(order[:2]), tuple(order[2:4])]
        free, count = sorted(order[4:]), rng.randint(1, 4)
        busy = sum(map(routes, others), Counter())

        def shared(one, busy=busy):
            return sum(number * busy[link] for link, number in routes(one[-1]).items())
        expected = min(plain_sets(fabric, free, count), key=lambda one: (shared(one), *one))[-1]
        assert choose("contention", fabric, free, count, others, rng) == expected


def test_fragments():
    ring, torus = from_spec("ring:8"), from_spec("torus:3x5")
    assert fragments(ring, [1, 2, 4, 5, 6, 7]) == pytest.approx(float(Fraction(1, 3)))
    assert fragments(ring, [0, 2, 4, 6]) == pytest.approx(0.75)
    assert fragments(torus, list(range(15))) == 0 and fragments(torus, []) == 0
    assert fragments(from_spec("switch:8"), [0, 2, 4, 6]) == 0  # a switch joins whatever is free
    # 10 ps with NPUs 0 and 3 held, 5 ps with 0, 3 and 5, nobody for 7 ps, then 1 ps with all but 2
    spans = [((0,), 0, 15), ((3,), 0, 15), ((5,), 10, 15), ((0, 1, 3, 4, 5, 6, 7), 22, 23)]
    assert fragmentation(ring, spans) == pytest.approx(float((Fraction(1, 3) * 10 + Fraction(3, 5) * 5 + 0) / 16))
    assert fragmentation(ring, []) == 0


def tenants_of(fabric, way, rng, many=7):
    def wanted(number):
        size, count = f"{rng.randint(1, 999)}KB", rng.randint(1, min(6, fabric.n_npus))
        name, kind = f"t{number}", rng.choice(["all-reduce ring", "all-to-all direct"]).split()

        def built(npus, start):
            whole = len(npus) == fabric.n_npus
            work = build(kind[1], kind[0], fabric, size) if whole else among(kind[1], kind[0], size, fabric, npus)
            return Tenant(name=name, work=work, arrival=start, npus=npus)
        return Wanted(name, way, count, f"{rng.randint(0, 40)}.5us", built)
    return [wanted(number) for number in range(many)]


@pytest.mark.parametrize("way", ["packed", "random", "contention"])
@pytest.mark.parametrize("spec", ["switch:7", "torus:3x3", "ring:5"])
def test_first_come_first_served(spec, way):
    fabric, model = from_spec(spec), Model()
    asked = tenants_of(fabric, way, random.Random(f"{spec}{way}"))
    tenants, held = placed(asked, fabric, model, {})
    ends = ends_ps(tenants, model=model)
    begins = {one.name: parse_time(one.arrival) for one in tenants}
    order = sorted(asked, key=lambda one: parse_time(one.arrival))
    before = 0
    for one in order:
        begin = begins[one.name]

        def free_at(time, one=one):
            held_then = [other for other in order[: order.index(one)] if begins[other.name] <= time < ends[other.name]]
            taken = [npu for other in held_then for npu in held[other.name]]
            assert len(taken) == len(set(taken))
            return set(range(fabric.n_npus)) - set(taken)
        earliest = max(before, parse_time(one.arrival))
        assert len(held[one.name]) == one.n_npus and set(held[one.name]) <= free_at(begin) and begin >= earliest
        if begin > earliest:  # not before: there were too few
            assert len(free_at(begin - 1)) < one.n_npus and begin in ends.values()
        before = begin
    if spec == "switch:7":  # where nobody is in the way of another: each as long as alone
        for one in tenants:
            alone = simulate([Tenant(name="a", work=one.work, npus=one.npus)], model=model).time_ps
            assert ends[one.name] - begins[one.name] == alone


def share(*words):
    return main(["share", "--quiet", "--topology", "ring:5", *words])


def test_command(tmp_path, capsys):
    file, again = tmp_path / "a.json", tmp_path / "b.json"
    words = ["--tenant", "all-reduce ring 64K npus=1,4 name=given",
             "--tenant", "all-to-all direct 900K place=packed:2", "--tenant",
             "workload=resnet-50 samples=1 peak=312 efficiency=0.5 place=random:3 start=1us",
             "--tenant", "all-gather ring 1K"]
    assert share(*words, "--check", "--json", str(file)) == 0
    out = capsys.readouterr().out
    assert "packed" in out and "% of the free NPUs are outside of their largest part" in out
    rows = json.loads(file.read_text())["rows"]
    assert [row["npus"] for row in rows] == ["1,4", "2-3", rows[2]["npus"], "0-4"]
    assert rows[2]["waited_s"] > 0 and rows[0]["waited_s"] == 0
    assert main(["share", "--quiet", "--spec", str(file), "--json", str(again)]) == 0
    assert [row["end_s"] for row in json.loads(again.read_text())["rows"]] == [row["end_s"] for row in rows]


def test_fabrics_that_are_too_large_are_refused(capsys):
    words = ["share", "--quiet", "--topology", "ring:2049", "--tenant", "all-reduce ring 64K place=random:2"]
    assert main(words) == 2
    assert "ring:2049 has 2,049 nodes; tenants are placed on at most 2,048: give npus" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("place=packed", "write WAY:NPUS, such as packed:8"), ("place=near:2", "ways are packed, random, contention"),
        ("place=packed:6", "ring:5 has 5 NPUs: place on 1 to 5"), ("place=packed:0", "place on 1 to 5"),
        ("place=packed:2 npus=0-1", "without npus"), ("place=packed:99999999999999999999", "place on 1 to 5"),
        ("place=packed:2 start=9", "'9' is not a time"), ("place=packed:2 nothing=3", "unknown key 'nothing'"),
    ],
)
def test_bad_input_is_one_line(words, message, capsys):
    assert share("--tenant", f"all-reduce ring 64K {words}") == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
