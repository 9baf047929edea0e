"""Tables of nvidia-smi and rocm-smi in the shapes that people paste: PCIe alone, NVLink in part, NICs, launchers."""

from __future__ import annotations

import json
import re

import pytest

from tests.topologies.formats.test_files import all_to_all, rates, route, table
from topologies import Topology, WeftError
from topologies.formats.nvidia_smi import looks_like_nvidia_smi, parse_nvidia_smi
from topologies.formats.rocm_smi import looks_like_rocm_smi, parse_rocm_smi
from topologies.text.schema import InputNote


def matrix(*rows: str, affinity: str = "0-15") -> str:
    """A table without NICs from rows of relations, upper triangle and diagonal included."""
    gpus = [f"GPU{at}" for at in range(len(rows))]
    lines = ["\t" + "\t".join([*gpus, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    lines += ["\t".join([gpu, *row.split(), affinity, "0", "", "N/A"]) for gpu, row in zip(gpus, rows, strict=True)]
    return "\n".join([*lines, "", "Legend:", "", "  X    = Self", "  PIX  = Connection traversing at most a bridge"])


def names(t: Topology) -> list[str]:
    return [t.node_name(node) for node in range(t.n_nodes)]


class TestPcieAlone:
    @pytest.mark.parametrize("relation", ["PIX", "PXB", "PHB", "NODE"])
    def test_two_cards_meet_where_the_table_says(self, relation: str) -> None:
        t = parse_nvidia_smi(matrix(f"X {relation}", f"{relation} X"), "a", bandwidth="24GB/s")
        there = {"PIX": "switch0", "PXB": "bridges0", "PHB": "host0", "NODE": "numa0"}[relation]
        assert names(t) == ["gpu0", "gpu1", there]
        assert set(t.bandwidth_Bps.tolist()) == {24e9}

    @pytest.mark.parametrize("relation", ["SYS", "SOC"])
    def test_sockets_have_a_link_that_all_share(self, relation: str) -> None:
        r = relation
        t = parse_nvidia_smi(matrix(f"X PHB {r} {r}", f"PHB X {r} {r}", f"{r} {r} X PHB", f"{r} {r} PHB X"), "a",
                             bandwidth="12GB/s")
        assert names(t)[4:] == ["host0", "host1"]
        assert t.n_links == 10
        assert route(t, 0, 3) == ["gpu0->host0", "host0->host1", "host1->gpu3"]

    def test_levels_are_nested(self) -> None:
        t = parse_nvidia_smi(matrix("X PIX NODE SYS", "PIX X NODE SYS", "NODE NODE X SYS", "SYS SYS SYS X"), "a",
                             bandwidth="12GB/s")
        assert names(t)[4:] == ["switch0", "numa0", "socket-gpu3"]
        assert route(t, 1, 3) == ["gpu1->switch0", "switch0->numa0", "numa0->socket-gpu3", "socket-gpu3->gpu3"]

    def test_the_first_message_names_all_that_is_missing(self) -> None:
        with pytest.raises(WeftError, match=r"no NVLink joins the GPUs, .* give the rate of PCIe, such as --link-band"):
            parse_nvidia_smi(matrix("X SYS", "SYS X"), "a")
        with pytest.raises(WeftError, match="--nvlink 3 for A100, and the rates of NVLink and PCIe"):
            parse_nvidia_smi(BRIDGED, "a")

    def test_a_bandwidth_too_many_is_refused(self) -> None:
        with pytest.raises(WeftError, match="has links of PCIe: 2 bandwidths are given"):
            parse_nvidia_smi(matrix("X SYS", "SYS X"), "a", bandwidth=["20GB/s", "12GB/s"])


BRIDGED = matrix("X NV4 SYS SYS", "NV4 X SYS SYS", "SYS SYS X NV4", "SYS SYS NV4 X")


class TestBridges:
    def test_pairs_have_nvlink_and_the_rest_pcie(self) -> None:
        t = parse_nvidia_smi(BRIDGED, "a", nvlink="3", bandwidth="20GB/s,24GB/s")
        assert rates(t, "gpu0", "gpu1") == 80e9
        assert route(t, 0, 2) == ["gpu0->host0", "host0->host1", "host1->gpu2"]
        with pytest.raises(WeftError, match=r"NVLink does not join all GPUs, .* give the rates of both"):
            parse_nvidia_smi(BRIDGED, "a", nvlink="3", bandwidth="20GB/s")

    def test_cpus_far_apart_are_sockets(self) -> None:
        lines = BRIDGED.splitlines()
        lines[1] = lines[1].replace("0-15", "16-31")
        t = parse_nvidia_smi("\n".join(lines), "a", nvlink="3", bandwidth=["20GB/s", "24GB/s"])
        assert "socket-gpu0" in names(t)


class TestShapes:
    FINE = table(all_to_all(4, 4))

    @pytest.mark.parametrize(
        "change",
        [
            lambda text: "\n".join(f"node1: {line}" for line in text.splitlines()),
            lambda text: "\n".join(f"[1,0]<stdout>:{line}" for line in text.splitlines()),
            lambda text: "\n".join(f"0: {line}" for line in text.splitlines()),
            lambda text: re.sub(r"GPU(\d)", r"GPU \1", text),
            lambda text: text.replace("GPU", "\x1b[4mGPU").replace("mlx5_0\tCPU", "mlx5_0\tCPU\x1b[0m"),
            lambda text: text + "\n\n" + text,
            lambda text: text.replace("\t", "    "),
            lambda text: text.replace("CPU Affinity\tNUMA Affinity", "CPU Affinity\tNUMA Affinity\tGPU NUMA ID"),
            lambda text: text.replace("\tCPU Affinity\tNUMA Affinity", ""),
            lambda text: text.replace("0-63", "0-31,64-95"),
            lambda text: re.sub(r"GPU(\d)", lambda found: f"GPU{int(found[1]) + 2}", text),
            lambda text: "$ nvidia-smi topo -m\r\n" + text.replace("\n", "\r\n"),
        ],
        ids=["host", "mpirun", "srun", "spaces", "colors", "twice", "no tabs", "GPU NUMA ID", "no affinity", "commas",
             "from GPU2", "CRLF"],
    )
    def test_all_are_read_alike(self, change) -> None:
        text = change(self.FINE)
        assert looks_like_nvidia_smi(text)
        t = parse_nvidia_smi(text, "a", nvlink="3")
        assert (t.n_npus, t.n_nodes, t.n_links) == (4, 4, 12)
        assert set(t.bandwidth_Bps.tolist()) == {80e9}

    def test_other_nodes_of_a_log_must_be_alike(self) -> None:
        with pytest.raises(WeftError, match="another table, which differs from the first"):
            parse_nvidia_smi(self.FINE + "\n" + table(all_to_all(4, 2)), "a", nvlink="3")

    def test_the_table_of_who_reaches_whom_is_named(self) -> None:
        with pytest.raises(WeftError, match="as nvidia-smi topo -p2p says who reaches whom"):
            parse_nvidia_smi(" \tGPU0\tGPU1\t\n GPU0\tX\tGNS\n GPU1\tGNS\tX\n", "a", nvlink="3")

    def test_the_table_of_who_reaches_whom_may_stand_beside(self) -> None:
        ways = "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n"
        found = parse_nvidia_smi(ways + "\n \tGPU0\tGPU1\t\n GPU0\tX\tGNS\n GPU1\tGNS\tX\n", "a", bandwidth="20GB/s")
        assert found.n_npus == 2


def showtopo(types: list[list[str]], weights: list[list[int]], hops: list[list[int]] | None = None, numa: str = "",
             bandwidths: list[list[str]] | None = None) -> str:
    """Output of rocm-smi."""
    gpus = [f"GPU{at}" for at in range(len(types))]
    text = ["============ ROCm System Management Interface ============"]
    for title, cells in (("Weight", weights), ("Hops", hops), ("Link Type", types), ("Bandwidth", bandwidths)):
        if cells is not None:
            text += [f"=========== {title} between two GPUs ===========", "       " + "         ".join(gpus)]
            text += [f"{gpu}   " + "            ".join(map(str, row)) for gpu, row in zip(gpus, cells, strict=True)]
            text.append("")
    text += ["============ Numa Nodes ============"]
    text += [f"GPU[{at}]\t\t: (Topology) Numa Node: {node}" for at, node in enumerate(numa)]
    return "\n".join([*text, "============ End of ROCm SMI Log ============"])


def square(n: int, value: object, own: object = 0) -> list[list]:
    return [[own if a == b else value for b in range(n)] for a in range(n)]


class TestRocm:
    def test_xgmi_joins_every_two(self) -> None:
        text = showtopo(square(4, "XGMI"), square(4, 15), square(4, 1), "0011")
        assert looks_like_rocm_smi(text)
        with pytest.warns(InputNote, match="does not say how many links join two GPUs"):
            t = parse_rocm_smi(text, "a", bandwidth="48GB/s")
        assert (t.n_npus, t.n_nodes, t.n_links) == (4, 4, 12)
        assert set(t.bandwidth_Bps.tolist()) == {48e9}

    def test_what_weighs_more_than_a_hop_is_no_link(self) -> None:
        """A ring of four, as hops of 1 do not tell."""
        weights = [[0, 15, 30, 15], [15, 0, 15, 30], [30, 15, 0, 15], [15, 30, 15, 0]]
        t = parse_rocm_smi(showtopo(square(4, "XGMI"), weights, square(4, 1)), "a", bandwidth="36GB/s")
        assert t.n_links == 8
        assert len(route(t, 0, 2)) == 2

    def test_bandwidths_are_those_of_direct_links(self) -> None:
        own = [["N/A", "50000-200000", "0-0"], ["50000-200000", "N/A", "50000-50000"], ["0-0", "50000-50000", "N/A"]]
        text = showtopo(square(3, "XGMI"), square(3, 15), bandwidths=own)
        t = parse_rocm_smi(text, "a")
        assert t.n_links == 4
        assert (rates(t, "gpu0", "gpu1"), rates(t, "gpu1", "gpu2")) == (200e9, 50e9)
        with pytest.raises(WeftError, match="has the rates of its links: omit the bandwidth"):
            parse_rocm_smi(text, "a", bandwidth="48GB/s")

    @pytest.mark.parametrize("numa", ["0011", ""])
    def test_pcie_is_of_numa_nodes_or_hops(self, numa: str) -> None:
        hops = [[0, 2, 3, 3], [2, 0, 3, 3], [3, 3, 0, 2], [3, 3, 2, 0]]
        text = showtopo(square(4, "PCIE"), square(4, 52), hops, numa)
        t = parse_rocm_smi(text, "a", bandwidth="24GB/s")
        spaced = re.sub(r"GPU\[(\d)\]\t\t", r"GPU \1   ", text)
        assert parse_rocm_smi(spaced, "a", bandwidth="24GB/s").n_links == t.n_links
        assert names(t)[4:] == ["numa0", "numa1"]
        assert route(t, 0, 3) == ["gpu0->numa0", "numa0->numa1", "numa1->gpu3"]

    def test_two_hives_meet_over_pcie(self) -> None:
        types = [[["0", "XGMI", "PCIE", "PCIE"][a ^ b] for b in range(4)] for a in range(4)]
        weights = [[[0, 15, 72, 72][a ^ b] for b in range(4)] for a in range(4)]
        text = showtopo(types, weights, numa="0011")
        t = parse_rocm_smi(text, "a", bandwidth=["36GB/s", "24GB/s"])
        assert rates(t, "gpu0", "gpu1") == 36e9
        assert len(route(t, 0, 2)) == 3
        with pytest.raises(WeftError, match=r"no rates of XGMI and PCIe: give --link-bandwidth, such as 36GB/s,24GB/s"):
            parse_rocm_smi(text, "a")

    def test_a_table_without_its_title_is_named(self) -> None:
        """Its rows would be those of the table above."""
        text = showtopo(square(2, "XGMI"), square(2, 15), bandwidths=square(2, "50000-50000", "N/A"))
        without = "\n".join(line for line in text.splitlines() if "Bandwidth" not in line)
        with pytest.raises(WeftError, match="the table of type is not square"):
            parse_rocm_smi(without, "a", bandwidth="48GB/s")

    def test_a_table_of_bandwidths_without_one_is_none(self) -> None:
        text = showtopo(square(2, "XGMI"), square(2, 15), bandwidths=square(2, "N/A", "N/A"))
        assert set(parse_rocm_smi(text, "a", bandwidth="48GB/s").bandwidth_Bps.tolist()) == {48e9}
        with pytest.raises(WeftError, match="has no rates of XGMI: give --link-bandwidth"):
            parse_rocm_smi(text, "a")

    def test_buses_name_gpus_in_newer_versions(self) -> None:
        text = "ACCESS TABLE:\n             0000:0c:00.0 0000:22:00.0\n0000:0c:00.0 ENABLED      ENABLED\n"
        text += "0000:22:00.0 ENABLED      ENABLED\n\nWEIGHT TABLE:\n             0000:0c:00.0 0000:22:00.0\n"
        text += "0000:0c:00.0 0            15\n0000:22:00.0 15           0\n\nLINK TYPE TABLE:\n"
        text += "             0000:0c:00.0 0000:22:00.0\n0000:0c:00.0 SELF         XGMI\n"
        text += "0000:22:00.0 XGMI         SELF\n"
        assert parse_rocm_smi(text, "a", bandwidth="64GB/s").n_links == 2

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("GPU1   XGMI", "GPU1   PCIE", "type of GPU0 to GPU1 is XGMI, but the reverse is PCIE"),
            ("XGMI", "WIFI", "GPU0 to GPU1 is 'WIFI': known are XGMI and PCIE"),
            ("Link Type between", "Nothing of", "has no table of link types"),
            ("GPU1   XGMI            0", "", "the table of type has 1 of 2 rows: is the file cut off"),
            ("GPU0   0            15", "GPU0   0", "line 4: expected the row of GPU0 with 2 cells"),
            ("15", "30", "by weight no direct links join them"),
        ],
    )
    def test_what_is_wrong_is_named(self, old: str, new: str, message: str) -> None:
        text = showtopo(square(2, "XGMI"), square(2, 15), square(2, 1))
        assert old in text
        with pytest.raises(WeftError, match=re.escape(message)):
            parse_rocm_smi(text.replace(old, new), "a", bandwidth="48GB/s")

    def test_launchers_put_names_before_lines(self) -> None:
        text = showtopo(square(2, "XGMI"), square(2, 15), square(2, 1))
        there = parse_rocm_smi("\n".join("node1: " + line for line in text.splitlines()), "a", bandwidth="48GB/s")
        assert there.n_links == 2

    def test_one_gpu_has_no_links(self) -> None:
        assert parse_rocm_smi(showtopo([["0"]], [[0]]), "a").n_npus == 1
        with pytest.raises(WeftError, match="has one GPU, and no links: omit the bandwidth"):
            parse_rocm_smi(showtopo([["0"]], [[0]]), "a", bandwidth="24GB/s")


def rocm_json(n: int, **more: object) -> str:
    """Of rocm-smi --showtopo --json: every pair once."""
    said = {f"(Topology) {what} between DRM devices {a} and {b}": value for b in range(n) for a in range(b)
            for what, value in (("Weight", "15"), ("Hops", "1"), ("Link type", "XGMI"))}
    return json.dumps({"system": said | more, **{f"card{at}": {"(Topology) Numa Node": "0"} for at in range(n)}})


def amd_json(n: int, bandwidth: str = "50000-64000") -> str:
    """Of amd-smi topology --json."""
    return json.dumps([{"gpu": a, "links": [
        {"gpu": b, "weight": 15 * (a != b), "link_type": "XGMI" if a != b else "SELF", "num_hops": int(a != b),
         "bandwidth": bandwidth if a != b else "N/A"} for b in range(n)]} for a in range(n)])


class TestJson:
    def test_rocm_smi(self) -> None:
        assert looks_like_rocm_smi(rocm_json(4))
        t = parse_rocm_smi(rocm_json(4), "a", bandwidth="48GB/s")
        assert (t.n_npus, t.n_nodes, t.n_links) == (4, 4, 12)

    def test_amd_smi_has_rates(self) -> None:
        assert looks_like_rocm_smi(amd_json(4))
        t = parse_rocm_smi(amd_json(4), "a")
        assert (t.n_links, set(t.bandwidth_Bps.tolist())) == (12, {64e9})

    def test_gpus_of_amd_smi_are_those_of_their_numbers(self) -> None:
        rows = json.loads(amd_json(3))
        turned = [{**row, "links": row["links"][::-1]} for row in rows[::-1]]
        rows[0]["links"][1]["bandwidth"] = rows[1]["links"][0]["bandwidth"] = "1-2000"
        tables = [parse_rocm_smi(json.dumps(some), "a").bandwidth_Bps.tolist() for some in (rows, turned)]
        assert tables[0] == tables[1] and sorted(tables[0]) == [2e9, 2e9, 64e9, 64e9, 64e9, 64e9]

    @pytest.mark.parametrize(("text", "message"), [
        (amd_json(3).replace('"gpu": 2, "links"', '"gpu": 1, "links"'), "has the weight of GPU 1 and GPU 0 twice"),
        (amd_json(2).replace('"gpu": 1, "links"', '"gpu": 256, "links"'), "gpu is 256: give an integer from 0 to 255"),
        (rocm_json(3).replace("Link type between DRM devices 0 and 1", "x"), "lacks the type of GPU 0 and GPU 1"),
        (rocm_json(2).replace("XGMI", "WIFI"), "GPU0 to GPU1 is 'WIFI': known are XGMI and PCIE"),
        (rocm_json(0), "has no table of link types"),
        ('{"system": 3}', "has no table of link types"),
        ("[3]", "has no table of link types"),
        (rocm_json(2, **{"(Topology) Hops between DRM devices 0 and 999": "1"}), "at most 256 GPUs"),
    ])
    def test_what_is_wrong_is_named(self, text: str, message: str) -> None:
        with pytest.raises(WeftError, match=re.escape(message)):
            parse_rocm_smi(text, "a", bandwidth="48GB/s")
