"""Who writes workload files, in which version, and how much is read: rows of docs/reference/formats.md."""

from topologies.text.schema import Absent, Producer
from workloads.formats import goal, simai
from workloads.formats.chakra_schema import ROWS

_ASTRA = "weft astra; --workload PREFIX of trace, train, compare; --tenant job=PREFIX of share"
_WORK = "--workload FILE of trace, train, compare; --tenant workload=FILE of share"
_MESSAGES = "--workload FILE of trace, train; --tenant workload=FILE of share"

PRODUCERS = (
    Producer("Chakra traces", "Chakra's generator", "mlcommons/chakra 21585d8, 2026-05-20 (1.0.0)", _ASTRA,
             "12 of its 14 examples: computations, all collectives, barriers (in jobs), memory nodes, metadata",
             "its send and its receive: they name no peer, which the feeders do not read either"),
    Producer("Chakra traces", "Chakra's PyTorch converter", "mlcommons/chakra 21585d8, 2026-05-20; schemas 1.0.1 to "
             "1.0.2-chakra.0.0.4", _ASTRA, "all nodes, process groups in metadata, calls of the host as CPU time, "
             "where `weft astra` stops as ASTRA-sim does", "sends and receives, which have no peer"),
    Producer("Chakra traces", "Chakra's text converter", "mlcommons/chakra 21585d8, 2026-05-20", _ASTRA,
             "all; a phase without a collective is an all-reduce of 0 bytes there, which `weft astra` refuses"),
    Producer("Chakra traces", "feeders of Chakra: et_feeder, JSON wrapper, V3", "mlcommons/chakra 21585d8; "
             "astra-sim/chakra `feederv3`, 2025", _ASTRA, "what each asks for, with its defaults; control "
             "dependencies unless they contradict the data, as V3; JSON of the wrapper and of the jsonizer",
             "the JSON of the wrapper's own tests (json_trace), whose collectives say neither kind nor size",
             tuple(Absent(", ".join(one.of), one.name, one.told, one.source)
                   for one in ROWS if one.absent is not None)),
    Producer("Chakra traces", "STAGE", "astra-sim/stage 9ec6c02, 2026-06-01", _ASTRA,
             "all: sets of dp, tp, pp, weight sharding and experts; `comm_group` or `pg_name`, groups of one; JSON"),
    Producer("Chakra traces", "Chakra's MPI converter", "mlcommons/chakra branch `mpi_converter`, 26eb19c, 2025-09-22",
             _ASTRA, "computations, collectives, messages", "ranks that wait a different number of times: each wait "
             "is a barrier of all there"),
    Producer("Chakra traces", "converters and generators of the schemas 0.0.1 to 0.0.3; STAGE's backend for 0.0.1",
             "mlcommons/chakra df405e8 to ae7c671, 2023-01-17 to 2023-09-19; ASTRA-sim before 1879f6f", _ASTRA,
             "all nodes, .eg and .et; durations in ns of 0.0.1, as ASTRA-sim took them, in us of later ones",
             "where tensors of 0.0.1 are; collectives of the text converters of 0.0.2 and 0.0.3, which gave no size"),
    Producer("communicator groups (JSON)", "ASTRA-sim, STAGE", "astra-sim 518bd51, 2026-03-25",
             "--comm-group FILE, or --communicator; comm-group=FILE in a --tenant of share",
             "all; names need not be numbers in jobs, and may have several groups; layers take them too"),
    Producer("remote memory (JSON)", "astra-memory-analytical", "as of 2026-03-25", "--remote-memory FILE",
             "latency and bandwidth of an NPU; in `weft astra` those of a node and of a pool, one access at a time",
             "", (Absent("memory", "remote-mem-latency", "0", "AnalyticalRemoteMemory.cc"),)),
    Producer("text workloads", "ASTRA-sim 1.0, LIBRA", "LIBRA of 2024", _WORK, "layers of twelve columns, or with a "
             "parallelism of their own (HYBRID_CUSTOMIZED); checkpoints, and passes that start there again; what the "
             "loop of a keyword leaves out", "DLRM's own order of layers: all run first to last, and back",
             (Absent("first line", "groups", "by its word: DATA, MICRO all NPUs for gradients of weights; MODEL, "
                     "DISTRIBUTED_INFERENCE all for the passes; HYBRID_DATA_MODEL and HYBRID_MODEL_DATA the first "
                     "dimension for the one, the others for the other", "Workload.cc, decode_involved_dimensions"),)),
    Producer("text workloads", "SimAI and AICB", "SimAI cef83f9, 2026-08-14 (1.7): both files; AICB 23eec3c, "
             "2025-12-27", _WORK, "headers of training, inference and micro-benchmarks; groups from its sizes; "
             "all-gathers as whole arrays", "bubbles of pipelines, which are told; several checkpoints, which SimAI "
             "takes for one",
             simai.ABSENT),
    Producer("GOAL text", "LogGOPSim, Schedgen", "76451de, 2023-12-06", _WORK,
             "sends, receives and calcs with requires and irequires of all of them",
             "receives from any source or of any tag: which message they take depends on the run; the binary form",
             goal.ABSENT),
    Producer("GOAL text", "ATLAHS", "8837294, 2025-08-28", _WORK, "the same; `nic` is passed over and told"),
    Producer("task graphs (.fbuf, or CSV)", "FlexFlow of TopoOpt", "TopoOpt 4a68a66: all 119 of its repository", _WORK,
             "forward, backward, messages, all-reduces of any group; its own network is passed over",
             "updates and barriers, which no released graph has"),
    Producer("plans of circuits (JSON)", "two public simulators of optical fabrics", "panel-ocs-plan, version 6",
             _MESSAGES + "; written by weft schedule --ocs-plan", "matchings of each plane and "
             "round, stripes, forced and synchronized changes, the first one free or not; stream, tag and phase are "
             "passed over",
             "flows on another network (DIRECT); other versions"),
    Producer("Kineto profiles (Chrome traces)", "PyTorch", "Kineto output_json.cpp and saveNcclMeta of 2.2 to 2.9; "
             "October 2026", "--workload FOLDER, or what the names of all ranks' files begin with",
             "kernels, copies and the host's launches as they took; collectives and messages by their metadata, in the "
             "order of streams, behind what PyTorch has them wait for",
             "profiles without the GPU; metadata before 2.2, without sizes; clocks of ranks, which all begin at 0",
             (Absent("record_param_comms", "Seq", "its turn in its process group", "saveNcclMeta, before it had one"),
              Absent("record_param_comms", "Process Group Ranks", "all, if Group size is that of the job",
                     "saveNcclMeta: long lists are cut"),
              Absent("distributedInfo", "rank", "the last number of the file's name", "tensorboard_trace_handler"))),
    Producer("host traces", "PyTorch's ExecutionTraceObserver", "2.x", "", "", "calls of a host: Chakra's trace_link "
             "and converter make traces of them, which are read; named as such"),
    Producer("NCCL flight recorder (JSON)", "PyTorch", "FlightRecorder.hpp of dumps 2.4 and 2.5; dumps 2.10 of PyTorch "
             "2.14.1 with Gloo, written on 2026-11-27",
             "--workload PREFIX of PREFIX0.json, PREFIX1.json, ...", "collectives and messages, called when the host "
             "called them, in their process groups; what all ranks of a group still have; a "
             "group that no dump lists is of those that recorded it",
             "computations, which are not there; pickles, which may run any program",
             (Absent("pg_config", "ranks", "all NPUs", "FlightRecorder.hpp: empty for the default group"),
              Absent("entry", "process_group", "that of pg_id", "dumps before 2.0"),
              Absent("entry", "is_p2p", "false", "dumps before 2.3"))),
)
