"""What a topology file gives twice is an error, wherever it is: of no two values the last is taken."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from topologies import Topology, WeftError, from_links, read_topology, ring, torus, write_topology

FABRICS = {
    "ring": ring(3), "torus": torus((2, 2)),
    "parallel links": from_links([(0, 1, "1GB/s", 0), (0, 1, "2GB/s", 0), (1, 0, "1GB/s", 0)], n_npus=2),
}


def repeated_in_json(text: str) -> Iterator[tuple[str, str]]:
    """The file with each node, edge and key once more."""
    data = json.loads(text)
    for part in ("nodes", "edges"):
        for at, item in enumerate(data[part]):
            changed = item | {"hop_latency_s": 1.0} if part == "nodes" else item | {"bandwidth_Bps": 1.0}
            for where in (0, at + 1, len(data[part])):
                again = copy.deepcopy(data)
                again[part].insert(where, changed)
                yield f"{part} {at} at {where}", json.dumps(again)
    for key in ("nodes", "edges", "multigraph"):
        yield key, text.replace(f'"{key}"', f'"{key}": 1, "{key}"', 1)


def repeated_in_graphml(text: str) -> Iterator[tuple[str, str]]:
    """The file with each element once more; of edges without an id, which are parallel links, only what is in them."""
    for at, element in enumerate(ElementTree.fromstring(text).iter()):
        if element.tag.endswith("}edge") and element.get("id") is None:
            continue
        root = ElementTree.fromstring(text)
        for parent in root.iter():
            for place, child in enumerate(parent):
                if child is list(root.iter())[at]:
                    parent.insert(place + 1, copy.deepcopy(child))
                    yield f"{child.tag} {at}", ElementTree.tostring(root, encoding="unicode")
                    break
            else:
                continue
            break


@pytest.mark.parametrize("suffix", [".json", ".graphml"])
@pytest.mark.parametrize("name", FABRICS)
def test_nothing_is_read_twice(name: str, suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"net{suffix}"
    write_topology(FABRICS[name], file)
    text = file.read_text()
    read_topology(file)
    tried = 0
    for what, again in (repeated_in_json if suffix == ".json" else repeated_in_graphml)(text):
        file.write_text(again)
        with pytest.raises(WeftError, match=r"given twice|2 graphs"):
            raise AssertionError(f"{what} is read: {read_topology(file)!r}")
        tried += 1
    assert tried >= 10


def written(t: Topology, file: Path) -> str:
    write_topology(t, file)
    return file.read_text()


def test_an_edge_that_is_given_twice_is_named(tmp_path: Path) -> None:
    file = tmp_path / "net.json"
    data = json.loads(written(ring(3), file))
    data["edges"].append(data["edges"][0] | {"bandwidth_Bps": 1e9})
    file.write_text(json.dumps(data))
    with pytest.raises(WeftError, match=r"net\.json: edge npu0->npu1 is given twice$"):
        read_topology(file)


def test_two_keys_of_one_name_are_one_too_many(tmp_path: Path) -> None:
    file = tmp_path / "net.graphml"
    text = written(ring(3), file)
    key = '<key id="other" for="edge" attr.name="bandwidth_Bps" attr.type="double"/>'
    file.write_text(text.replace("<key ", f"{key}<key ", 1))
    with pytest.raises(WeftError, match="a key for edge 'bandwidth_Bps' is given twice"):
        read_topology(file)


@pytest.mark.parametrize("element", ["<edges/>", "<hyperedge/>", "<port/>"])
def test_an_element_that_is_not_read_is_told(element: str, tmp_path: Path) -> None:
    file = tmp_path / "net.graphml"
    file.write_text(written(ring(3), file).replace("</graph>", f"{element}</graph>"))
    with pytest.raises(WeftError, match=f"{element[:-2]}> in graph is not read: omit it"):
        read_topology(file)


def test_parallel_links_of_graphml_need_no_ids(tmp_path: Path) -> None:
    file = tmp_path / "net.graphml"
    text = written(ring(3), file)
    edge = text[text.index("<edge ") : text.index("</edge>") + len("</edge>")]
    file.write_text(text.replace(edge, edge + edge))
    assert read_topology(file).n_links == 7
