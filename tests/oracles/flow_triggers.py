"""A plain reader of htsim's connection matrix: flows, and for each the flows that must be done before it starts."""

from __future__ import annotations

from typing import NamedTuple


class Flow(NamedTuple):
    """One line `src->dst`; `after` are the numbers of flows that its trigger waits for."""

    src: int
    dst: int
    size_bytes: int
    after: frozenset[int]


def read_flows(text: str) -> dict[int, Flow]:
    """Flows by their ids; asserts that all counts, ids and triggers of the file agree."""
    heads: dict[str, int] = {}
    lines: dict[int, dict[str, str]] = {}
    triggers: dict[int, list[str]] = {}
    for line in text.splitlines():
        words = line.split()
        if words[0] in ("Nodes", "Connections", "Triggers"):
            heads[words[0]] = int(words[1])
        elif words[0] == "trigger":
            assert words[1] == "id"
            triggers[int(words[2])] = words[3:]
        else:
            flow = dict(zip(words[1::2], words[2::2], strict=True))
            flow["ends"] = words[0]
            lines[int(flow["id"])] = flow
    assert sorted(lines) == list(range(1, heads["Connections"] + 1))
    assert sorted(triggers) == list(range(1, heads.get("Triggers", 0) + 1))
    fired: dict[int, set[int]] = {number: set() for number in triggers}
    for number, flow in lines.items():
        assert ("start" in flow) != ("trigger" in flow)
        for end in ("send_done_trigger", "recv_done_trigger"):
            if end in flow:
                fired[int(flow[end])].add(number)
    for number, kind in triggers.items():
        expected = ["oneshot"] if len(fired[number]) == 1 else ["barrier", "count", str(len(fired[number]))]
        assert kind == expected
        assert any(flow.get("trigger") == str(number) for flow in lines.values())
    found = {}
    for number, flow in lines.items():
        src, dst = map(int, flow["ends"].split("->"))
        assert 0 <= src < heads["Nodes"]
        assert 0 <= dst < heads["Nodes"]
        after = frozenset(fired[int(flow["trigger"])]) if "trigger" in flow else frozenset()
        found[number] = Flow(src, dst, int(flow["size"]), after)
    return found
