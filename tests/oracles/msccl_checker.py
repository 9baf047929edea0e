"""An independent judge of MSCCL programs: the rules of the runtime spelled out, one by one, over plain dictionaries.

Nothing is shared with `collectives.formats`: the XML is read anew, every rule becomes an edge of a networkx graph,
reachability is a set of descendants for each call, and contributions are counted instead of collected.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import combinations, pairwise
from xml.etree import ElementTree

import networkx as nx

SENDS = {"s", "rcs", "rrs", "rrcs"}
RECEIVES = {"r", "rcs", "rrs", "rrc", "rrcs"}
READS = {"s", "rrs", "rrc", "rrcs", "cpy", "re"}
WRITES = {"r", "rcs", "rrc", "rrcs", "cpy", "re"}
FIFO = {"Simple": (2, 2_097_152), "LL": (8, 32_768), "LL128": (8, 576_000)}


def judge(text: str, size_bytes: int = 0) -> str:
    """ "right", or what is wrong first: "unloadable", "unpaired", "hangs", "races" or "wrong"."""
    root = ElementTree.fromstring(text)
    program = _Program(root, size_bytes)
    if program.unloadable():
        return "unloadable"
    if program.unpaired():
        return "unpaired"
    graph = program.graph()
    if graph is None or not nx.is_directed_acyclic_graph(graph):
        return "hangs"
    for in_place in program.ways:
        if program.races(graph, in_place):
            return "races"
        if not program.right(graph, in_place):
            return "wrong"
    return "right"


class _Program:
    def __init__(self, root: ElementTree.Element, size_bytes: int) -> None:
        self.kind = root.attrib["coll"].replace("_", "")
        self.n_chunks = int(root.attrib["nchunksperloop"])
        self.p = int(root.attrib["ngpus"])
        self.share = self.n_chunks // self.p
        inside = root.attrib["inplace"] == "1"
        outside = root.attrib.get("outofplace", "0" if inside else "1") == "1"
        self.ways = ([True] if inside else []) + ([False] if outside else [])
        self.slots, self.per_turn = FIFO[root.attrib["proto"]]
        chunk = max(1, math.ceil(size_bytes / self.n_chunks))
        self.most = min(71, max(1, self.per_turn // chunk))
        self.turns = math.ceil(chunk / self.per_turn)
        self.sizes = [{b: int(gpu.attrib[f"{b}_chunks"]) for b in "ios"} for gpu in root.findall("gpu")]
        self.blocks: dict[tuple[int, int], dict[str, int]] = {}
        self.steps: dict[tuple[int, int], list[dict[str, str]]] = {}
        for g, gpu in enumerate(root.findall("gpu")):
            for b, block in enumerate(gpu.findall("tb")):
                self.blocks[g, b] = {key: int(block.attrib[key]) for key in ("send", "recv", "chan")}
                self.steps[g, b] = [dict(step.attrib) for step in block.findall("step")]

    def unloadable(self) -> bool:
        for (g, b), steps in self.steps.items():
            for step in steps:
                count = int(step["cnt"])
                if not (0 if step["type"] == "nop" else 1) <= count <= 71:
                    return True
                if step["type"] in SENDS and self.blocks[g, b]["send"] < 0:
                    return True
                if step["type"] in RECEIVES and self.blocks[g, b]["recv"] < 0:
                    return True
                for end, used in (("src", READS), ("dst", WRITES)):
                    first = int(step[f"{end}off"])
                    inside = first >= 0 and first + count <= self.sizes[g][step[f"{end}buf"]]
                    if step["type"] in used and not inside:
                        return True
                if int(step["depid"]) >= 0:
                    other = self.steps.get((g, int(step["depid"])))
                    if other is None or not 0 <= int(step["deps"]) < len(other):
                        return True
        ends = [(g, block[end], block["chan"], end) for (g, _), block in self.blocks.items() for end in ("send", "recv")
                if block[end] >= 0]
        return len(set(ends)) < len(ends)

    def calls(self, g: int, b: int) -> list[tuple[int, int, int]]:
        """Step, first chunk and chunks of every call of a turn."""
        return [
            (at, start, min(self.most, int(step["cnt"]) - start))
            for at, step in enumerate(self.steps[g, b]) for start in range(0, max(1, int(step["cnt"])), self.most)
        ]

    def traffic(self) -> dict[tuple[int, int, int], dict[str, list[tuple[int, int, int, int, int]]]]:
        found: dict[tuple[int, int, int], dict[str, list[tuple[int, int, int, int, int]]]] = defaultdict(
            lambda: {"send": [], "recv": []}
        )
        for (g, b), block in self.blocks.items():
            for at, start, count in self.calls(g, b):
                kind = self.steps[g, b][at]["type"]
                if kind in SENDS:
                    found[g, block["send"], block["chan"]]["send"].append((g, b, at, start, count))
                if kind in RECEIVES:
                    found[block["recv"], g, block["chan"]]["recv"].append((g, b, at, start, count))
        return found

    def unpaired(self) -> bool:
        return any(
            [call[4] for call in one["send"]] != [call[4] for call in one["recv"]] for one in self.traffic().values()
        )

    def graph(self) -> nx.DiGraph | None:
        """Every call of every turn that matters, and one edge a rule."""
        fewest = min((len(one["send"]) for one in self.traffic().values()), default=1)
        turns = min(self.turns, math.ceil(self.slots / fewest) + 1)
        graph: nx.DiGraph = nx.DiGraph()
        for g, b in self.steps:
            line = [(turn, g, b, at, start) for turn in range(turns) for at, start, _ in self.calls(g, b)]
            graph.add_nodes_from(line)
            graph.add_edges_from(pairwise(line))
        for (g, b), steps in self.steps.items():
            for at, step in enumerate(steps):
                if int(step["depid"]) < 0 or step["type"] == "nop":
                    continue
                # with what nops before it wait for, back to the step that took over what was before it
                for held in reversed(steps[: at + 1]):
                    if held is not step and held["type"] != "nop" and int(held["depid"]) >= 0:
                        break
                    if int(held["depid"]) < 0:
                        continue
                    other, least = int(held["depid"]), int(held["deps"])
                    flagged = [n for n, one in enumerate(self.steps[g, other]) if n >= least and one["hasdep"] == "1"]
                    if not flagged:
                        return None
                    last = max(start for n, start, _ in self.calls(g, other) if n == flagged[0])
                    for turn in range(turns):
                        graph.add_edge((turn, g, other, flagged[0], last), (turn, g, b, at, 0))
        for one in self.traffic().values():
            sent, received = (
                [(turn, *call[:4]) for turn in range(turns) for call in one[end]] for end in ("send", "recv")
            )
            graph.add_edges_from(zip(sent, received, strict=True))
            graph.add_edges_from(zip(received, sent[self.slots :], strict=False))
        return graph

    def cell(self, g: int, buffer: str, at: int, in_place: bool) -> tuple[int, str, int]:
        if in_place and buffer != "s":
            if (self.kind, buffer) in (("allgather", "i"), ("reducescatter", "o")):
                at += g * self.share
            buffer = "array"
        return g, buffer, at

    def touched(self, call: tuple[int, int, int, int, int], in_place: bool) -> list[tuple[tuple[int, str, int], bool]]:
        _, g, b, at, start = call
        step = self.steps[g, b][at]
        count = next(count for n, first, count in self.calls(g, b) if (n, first) == (at, start))
        found = []
        for end, used, writes in (("src", READS, False), ("dst", WRITES, True)):
            if step["type"] in used:
                first = int(step[f"{end}off"]) + start
                found += [
                    (self.cell(g, step[f"{end}buf"], first + n, in_place), writes) for n in range(count)
                ]
        return found

    def races(self, graph: nx.DiGraph, in_place: bool) -> bool:
        by_cell: dict[tuple[int, str, int], list[tuple[tuple[int, int, int, int, int], bool]]] = defaultdict(list)
        for call in graph:
            if call[0] == 0:
                for cell, writes in self.touched(call, in_place):
                    by_cell[cell].append((call, writes))
        after: dict[tuple[int, int, int, int, int], set[tuple[int, int, int, int, int]]] = {}
        for call in reversed(list(nx.topological_sort(graph))):
            after[call] = set().union(*(after[one] | {one} for one in graph.successors(call)))
        for users in by_cell.values():
            for (one, writes), (other, also) in combinations(users, 2):
                if (writes or also) and one[2] != other[2] and other not in after[one] and one not in after[other]:
                    return True
        return False

    def right(self, graph: nx.DiGraph, in_place: bool) -> bool:
        held: dict[tuple[int, str, int], Counter[tuple[int, int]]] = {}
        for g in range(self.p):
            if self.kind == "broadcast" and g:
                continue
            for at in range(self.share if self.kind == "allgather" else self.n_chunks):
                held[self.cell(g, "i", at, in_place)] = Counter({(g, at): 1})
        wire: dict[tuple[int, int, int], list[list[Counter[tuple[int, int]]]]] = defaultdict(list)
        for call in nx.lexicographical_topological_sort(graph):
            turn, g, b, at, start = call
            if turn:
                continue
            step, block = self.steps[g, b][at], self.blocks[g, b]
            kind = step["type"]
            count = next(count for n, first, count in self.calls(g, b) if (n, first) == (at, start))
            came = wire[block["recv"], g, block["chan"]].pop(0) if kind in RECEIVES else [Counter()] * count
            goes = []
            for n in range(count if kind != "nop" else 0):
                src = self.cell(g, step["srcbuf"], int(step["srcoff"]) + start + n, in_place)
                dst = self.cell(g, step["dstbuf"], int(step["dstoff"]) + start + n, in_place)
                total = Counter(came[n])
                if kind in READS:
                    if src not in held:
                        return False
                    total += held[src]
                if kind == "re":
                    if dst not in held:
                        return False
                    total += held[dst]
                if max(total.values(), default=0) > 1:
                    return False
                if kind in WRITES:
                    held[dst] = total
                goes.append(total)
            if kind in SENDS:
                wire[g, block["send"], block["chan"]].append(goes)
        return all(
            held.get(self.cell(g, "o", at, in_place), Counter()) == wanted
            for g in range(self.p) for at, wanted in self.wanted(g)
        )

    def wanted(self, g: int) -> list[tuple[int, Counter[tuple[int, int]]]]:
        ranks = range(self.p)
        if self.kind == "allgather":
            return [(at, Counter([(at // self.share, at % self.share)])) for at in range(self.n_chunks)]
        if self.kind == "reducescatter":
            return [(at, Counter((r, g * self.share + at) for r in ranks)) for at in range(self.share)]
        if self.kind == "alltoall":
            return [
                (at, Counter([(at // self.share, g * self.share + at % self.share)])) for at in range(self.n_chunks)
            ]
        if self.kind == "broadcast":
            return [(at, Counter([(0, at)])) for at in range(self.n_chunks)]
        if self.kind == "reduce" and g:
            return []
        return [(at, Counter((r, at) for r in ranks)) for at in range(self.n_chunks)]
