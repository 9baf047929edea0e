"""What a file is, by how it begins, so that one in the place of another is named, with the flag that takes it."""

import re
from typing import NamedTuple

from topologies.checks import WeftError

HEAD = 65536
"""Characters that are looked at."""

TOPOLOGY, NETWORK, MACHINE, SCHEDULE, WORKLOAD = "topology file", "network", "machine", "schedule file", "workload"
MEASURED, MODEL, SPECS = "measurements", "model", ("spec file", "sweep file")
OF_RANKS = "what the names of all ranks' files begin with"

_XML = r"\A\s*(<\?xml[^>]*\?>\s*)?(<!(--.*?--|DOCTYPE[^>]*)>\s*)*"
_JSON = r"\A\s*[\[{]"


class Kind(NamedTuple):
    """A kind of file."""

    pattern: str
    what: str  # and how it is given to weft
    read_as: tuple[str, ...] = ()  # what readers call what they read


KINDS = tuple(Kind(pattern, what, tuple(read_as)) for pattern, what, *read_as in (
    (_XML + r"<system\b", "a topology of NCCL or RCCL: give it as --topology", TOPOLOGY, MACHINE),
    (_XML + r"<graphs\b", "an NCCL graph (NCCL_GRAPH_DUMP_FILE): rings and trees that it searched; NCCL_TOPO_DUMP_FILE "
     "writes the network"),
    (_XML + r"<algo\b", "an MSCCL program: give it as --algorithm", SCHEDULE),
    (_XML + r"<Algo\b", "trees of ForestColl: give them as --algorithm", SCHEDULE),
    (_XML + r"<platform\b", "a platform of SimGrid: give it as --topology", TOPOLOGY),
    (_XML + r"<graphml\b", "a graph in GraphML: give it as --topology", TOPOLOGY),
    (_XML + r"<topology\b", "an lstopo file of hwloc, without links between GPUs: NCCL_TOPO_DUMP_FILE writes them"),
    (r'\A\s*\{.*"threadblocks"', "an execution plan of MSCCL++: give it as --algorithm", SCHEDULE),
    (r'\A\s*\{.*"\d+-(Epoch_Duration|Expected_Epoch_Duration|Flows)"', "a schedule of TE-CCL: give it as --algorithm",
     SCHEDULE),
    (r'\A\s*\{.*"panel-ocs-plan"', "a plan of circuits: give it as --workload", WORKLOAD, "plan of circuits"),
    (r'\A\s*\{.*"topologies-per-dim"|(?m:^(npus_count|topology)\s*:\s*\[)', "a network of ASTRA-sim: give it as "
     "--topology", TOPOLOGY, NETWORK),
    (r"(?m:^(NpusCount|Topology)\s*:\s*\[)", "a network of LIBRA: give it as --network of weft optimize", NETWORK),
    (r'\A\s*\{.*"(topology-name|topology_configuration)"', "a network of ASTRA-sim before 1.0, of one shape by its "
     "name: that of 1.0 is read, with topologies-per-dim"),
    (r'\A\s*\{.*"logical-dims"', "the logical dimensions of ASTRA-sim's ns-3: the network is in its topology text"),
    (r"(?m:^\s*(ENABLE_QCN|TOPOLOGY_FILE|PACKET_PAYLOAD_SIZE)\s)", "a configuration of ASTRA-sim's ns-3: the network "
     "is in its TOPOLOGY_FILE"),
    (r"\A\s*\d+ +\d+ +\d+( +\d+ +\d+ +\S+)?\s*\n\s*\d+", "a topology of ns-3: give it as --topology", TOPOLOGY),
    (r"(?im:^\s*nodes\s+\d+\s+tiers\s)", "a topology of htsim: give it as --topology", TOPOLOGY),
    (r"(?im:^\s*nodes\s+\d+\s+connections\s)", "a connection matrix of htsim: flows, and no network: give it as "
     "--workload", WORKLOAD, "connection matrix"),
    (r"(?m:^\s*(\x1b\[4m)?\s*GPU0\s)", "a table of nvidia-smi topo: give it as --topology", TOPOLOGY),
    (r"ROCm System Management|between (two GPUs|DRM devices)|LINK TYPE TABLE|\"num_hops\"", "a table of rocm-smi or "
     "amd-smi: give it as --topology", TOPOLOGY),
    (r"\+-+\+\s*\n\|\s*NVIDIA-SMI", "the status of nvidia-smi: nvidia-smi topo -m writes the table"),
    (r"(?m:^GPU \d+: .*\n\s*Link \d+:)", "the status of NVLinks: nvidia-smi topo -m writes the table"),
    (r"\bNCCL INFO ", "a log of NCCL: NCCL_TOPO_DUMP_FILE writes the topology; weft judge reads the tables of "
     "nccl-tests that may be in it"),
    (r'(?m:^(?:Switch|Ca)\s+\d+\s+")', "the output of ibnetdiscover, whose hosts have no GPUs"),
    (r"(?m:^\s*SwitchName=)", "Slurm's topology.conf, whose links have no rates"),
    (r"(?m:^\s*(srun|slurmstepd|sbatch|salloc): )", "the output of a job of Slurm: weft judge reads the tables of "
     "nccl-tests that may be in it"),
    (r'(?m:^instances?:)|\A\s*\{.*"instances"\s*:', "a network in InfraGraph: give it as --topology", TOPOLOGY),
    (r"(?m:^(infrastructure|devices?)\s*:)", "a part or a draft of InfraGraph, as its documentation has them: an "
     "infrastructure of schema 2 or 3 is read, with instances and edges"),
    (r'\A\s*\{.*"(directed|multigraph)".*"(nodes|edges|links)"', "a node-link graph: give it as --topology", TOPOLOGY),
    (r"\A(?:\s|//[^\n]*\n|/\*.*?\*/)*num_ranks\b", "a GOAL file: give it as --workload", WORKLOAD, "GOAL file"),
    (r"\Atask,kind,server_or_src,", "a task graph of FlexFlow: give it as --workload", WORKLOAD, "task graph"),
    (r"\A\s*(DATA|MODEL|MICRO|DISTRIBUTED_INFERENCE|HYBRID_[A-Z_]+)\b", "layers of ASTRA-sim, LIBRA or SimAI: give "
     "them as --workload", WORKLOAD),
    (r'\A\s*\{.*"(workload_graph|NodeType)"', f"the Chakra trace of one rank: give {OF_RANKS} as --workload", "trace"),
    (r"\A.{1,3}\n[\x03-\x20]\d+\.\d+\.\d", f"the Chakra trace of one rank: give {OF_RANKS} as --workload", "trace"),
    (_JSON + r'.*"(traceEvents|distributedInfo)"', "the Kineto profile of one rank: give the folder of those of all, "
     "or what their names begin with, as --workload", "profile"),
    (r'\A\s*\{.*"schema".*"(pid|nodes)"', "a host trace of PyTorch: Chakra's trace_link and converter make traces of "
     "it, which are read", "trace"),
    (r'\A\s*\{.*"(entries|pg_config)"', "the dump of one rank of PyTorch's NCCL flight recorder: give what comes "
     "before the number of the rank as --workload", "flight recorder"),
    (r'\A\s*\{.*"(architectures|hidden_size|num_hidden_layers|model_type)"', "the config.json of a model: give it as "
     "--model", MODEL),
    (r'\A\s*\{.*"(zero_optimization|train_micro_batch_size_per_gpu)"', "a configuration of DeepSpeed: its stage is "
     "--zero of weft train --model"),
    (r'\A\s*\{.*"(scheduling-policy|preferred-dataset-splits)"|(?m:^scheduling-policy:)', "a system file of "
     "ASTRA-sim: give it as --system", "system file"),
    (r'\A\s*\{.*"memory-type"', "a remote memory file of ASTRA-sim: give it as --remote-memory", "remote memory file"),
    (r'\A\s*\{\s*"\w+"\s*:\s*\[\s*\[?\s*\d+\s*[,\]]', "a file of communicator groups: give it as --comm-group",
     "communicator groups", "communicator"),
    (r"(?im:^(forward|input_grad|weight_grad)\s*:\s*\[)", "a file of communicator groups: give it as --comm-group",
     "communicator groups", "communicator"),
    (r"(?m:^\s+(Link|Switch|NIC)\s*:\s*[\d.])", "a cost file of LIBRA: give it as --cost of weft optimize", "cost"),
    (r'\A\s*\{.*"weft"\s*:.*"rows"\s*:', "a result of weft: weft plot draws it, and its command takes it as --spec",
     "result", MEASURED, *SPECS),
    (r"(?m:^\s*\[\[(slow-link|link-down|node-down|repair|straggler|loss|jitter)\]\])", "a fault plan: give it as "
     "--faults", "fault plan"),
    (r"(?m:^gpu\s*=.*\n(.*\n)*?gpus\s*=)", "the profile of a machine: give it as --machine", MACHINE),
    (r"(?m:^\s*(flavor|local_batch_size|data_parallel_\w+)\s*=|^\s*\[(job|parallelism)\]|^\s*\[model\]\s*\n\s*name "
     r"*=)", "a job file of torchtitan: give it as --model", "job file"),
    (r"--num-layers\b", "a script or arguments of Megatron-LM: give it as --model", "job file"),
    (r'(?m:^\s*\[\[?(topology|collective|sweep|workload|iteration|tenant|astra|optimize)\]\]?)|\A\s*\{\s*"(topology|'
     r'collective|model|sweep|workload|iteration)"\s*:\s*\{', "a spec of weft: give it as --spec, or to weft sweep",
     *SPECS),
    (r'# *(nThread|nccl-tests|out-of-place)|# *size +count +type|# OSU |#bytes +#repetitions|data_size\(|"inPlace"'
     r'|"(average_bus_bandwidth|out_of_place)"', "a table of measured times: weft judge reads it", MEASURED),
    (r"\Aid,system,gpus", "measurements of machines: weft paper hardware --data reads them", MEASURED),
    (r"\A[^\n]*\bsource,model,layers,", "published runs: weft paper training --data reads them", "runs"),
    (r"\A[^\n]*\bm,n,k\b", "a table of measured kernels: give it as --kernels", "kernels"),
    (r"\A(allreduce|allgather|reducescatter|broadcast|reduce),\d+,\d+,", "a configuration of NCCL's tuner, which NCCL "
     "reads, and weft writes"),
    (r"(?i)\A\s*(<!doctype html|<html)", "a page in HTML"),
    (r"\A#!.*(python|/bin/)", "a program, which is not run", "job file"),
    (r"\ASQLite format 3", "a database, as Nsight Systems exports it, or a store of weft sweep"),
    (r"\A\x80[\x02-\x05]", "a pickle, which may run any program; of PyTorch's flight recorder JSON is read, as by "
     "_dump_nccl_trace_json()"),
    (r"\A\x1f\x8b", "compressed with gzip: traces and profiles are read so, others after gunzip", "trace", "profile"),
    (r"\APAR1", "a Parquet file", "kernels"),
    (r"\A(\x89PNG|%PDF|\x7fELF|PK\x03\x04)", "a picture, a document, a program or an archive"),
))
"""The first that fits is told. Where one of the reader's own kind fits too, it reads the file."""


def refuse_other(text: str, path: object, what: str) -> None:
    """WeftError: a file is of a kind that is known, and not of one that is read as `what`."""
    own = (kind for kind in KINDS if what in kind.read_as)
    head = text[:HEAD]
    if any(re.search(kind.pattern, head, re.DOTALL) for kind in own):
        return
    for kind in KINDS:
        if re.search(kind.pattern, head, re.DOTALL):
            raise WeftError(f"{what} {path} is {kind.what}")
