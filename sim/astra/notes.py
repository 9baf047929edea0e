"""What ASTRA-sim does silently: inputs that never end are rejected, silent changes are reported."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sim.astra.collective import KINDS
from sim.astra.endpoint import split
from sim.astra.system_file import Implementation, System
from topologies import WeftError
from topologies.formats.astra_network import AstraNetwork
from workloads.formats.chakra_json import Groups
from workloads.formats.chakra_nodes import Communicates, Meaning

MOST_NOTES = 20


def check_collectives(
    meanings: Sequence[Mapping[int, Meaning]], system: System, network: AstraNetwork, groups: Groups
) -> None:
    """Reject collectives that ASTRA-sim crashes on, never ends, or ends without a result.

    WeftError: names the collective, the key and the dimension.
    """
    for one in _collectives(meanings):
        if system.replay or one.kind == "broadcast":
            continue
        if one.kind not in KINDS:
            raise WeftError(f"a {one.kind} of the workload: ASTRA-sim runs {', '.join(KINDS)}, and replays a broadcast")
        if len(groups.get(one.group, (0, 0))) == 1:
            continue
        split(one.size, one.kind, system.splits, network.npus)
        members = len(groups[one.group]) if one.group in groups else network.npus
        if members < network.npus:
            if one.kind in system.custom:
                raise WeftError(f"a custom {one.kind} in a communicator group of {members} of {network.npus} NPUs: not "
                                "simulated; give the collective an algorithm, or a group of all")
            _check_halving(one, system.in_group(one.kind, len(network.dimensions)).name, members, 0, system)
            continue
        if one.kind in system.custom:
            continue
        for dim, chosen in enumerate(system.implementations(one.kind, len(network.dimensions))):
            _check_halving(one, chosen.name, _extent(network, dim, chosen), dim, system)


def _extent(network: AstraNetwork, dim: int, chosen: Implementation) -> int:
    return network.npus if chosen.spans else network.dimensions[dim].npus


def _check_halving(one: Communicates, algorithm: str, npus: int, dim: int, system: System) -> None:
    if algorithm != "halvingDoubling":
        return
    where = f"system file {system.source}: {one.kind}-implementation: halvingDoubling"
    if one.kind == "all-to-all":
        raise WeftError(f"{where} does no all-to-all: ASTRA-sim stops")
    if npus & (npus - 1):
        raise WeftError(
            f"{where} needs a power of two, and dimension {dim} has {npus} NPUs: ASTRA-sim prints no result, or "
            "that of messages that make up no such collective"
        )


def notes_of(
    meanings: Sequence[Mapping[int, Meaning]], system: System, network: AstraNetwork, groups: Groups, backend: str,
    cycles: int, busiest_ns: int, unread: Sequence[str],
) -> list[str]:
    """Notes on what happened unasked.

    `meanings`: of the nodes of each NPU.
    `cycles`: of the slowest NPU.
    `busiest_ns`: bytes of the busiest link, in time.
    `unread`: traces of NPUs that the network does not have.
    """
    used = list(dict.fromkeys(_collectives(meanings)))
    notes = ["1 cycle is 1 ns; 1 GB/s of the network is 2^30 B/s, 1 GB/s of local-mem-bw is 10^9 B/s"]
    if not system.replay:
        for one in used:
            notes += _size_notes(one, system, network, groups)
        notes += _reduction_notes(used, system)
        notes += _algorithm_notes(used, system, network, groups)
    if backend == "unaware":
        notes.append(
            "the congestion-unaware backend lets messages of a collective share links without waiting"
            + (f": the busiest link alone needs {busiest_ns} cycles for its bytes" if busiest_ns > cycles else "")
        )
    elif len(network.dimensions) > 1:
        notes.append("ASTRA-sim's congestion-aware backend takes one dimension only: its rules are applied to each")
    if system.passed_over:
        notes.append(f"keys of the system file that are passed over: {', '.join(system.passed_over)}")
    if unread:
        notes.append(f"{len(unread)} traces of NPUs that the network does not have are not read, such as {unread[0]}")
    notes = list(dict.fromkeys(notes))
    more = [f"and {len(notes) - MOST_NOTES} more"] if len(notes) > MOST_NOTES else []
    return notes[:MOST_NOTES] + more


def _collectives(meanings: Iterable[Mapping[int, Meaning]]) -> Iterable[Communicates]:
    return (one for nodes in meanings for one in nodes.values() if isinstance(one, Communicates))


def _size_notes(one: Communicates, system: System, network: AstraNetwork, groups: Groups) -> Iterator[str]:
    if len(groups.get(one.group, (0, 0))) == 1:
        yield "a collective of one NPU takes no time here: ASTRA-sim itself never ends it"
        return
    if one.kind not in KINDS:
        yield f"a {one.kind} is not simulated: it takes the time of the trace"
        return
    chunk, streams = split(one.size, one.kind, system.splits, network.npus)
    if one.kind in system.custom:
        yield f"a custom {one.kind} moves the bytes of its traces, {streams} times, regardless of the workload"
        return
    if chunk * streams != one.size:
        yield (
            f"{one.kind} of {one.size} bytes in {system.splits} splits runs as {streams} of {chunk} bytes: "
            f"{chunk * streams / one.size - 1:+.1%}"
        )
    members = len(groups[one.group]) if one.group else network.npus
    if one.kind != "all-gather" and chunk % members:
        yield (
            f"{one.kind} of {one.size} bytes: a split of {chunk} bytes is not divisible by {members} NPUs, and "
            f"messages are truncated to whole bytes: {chunk // members * members} of {chunk} are moved"
        )


def _reduction_notes(used: Sequence[Communicates], system: System) -> list[str]:
    reduces = any(one.kind in ("all-reduce", "reduce-scatter") for one in used)
    return ["reductions take no time: the system file has no local-mem-bw"] if reduces and not system.memory_Bps else []


def _algorithm_notes(
    used: Sequence[Communicates], system: System, network: AstraNetwork, groups: Groups
) -> Iterator[str]:
    for one in used:
        if one.kind not in KINDS or len(groups.get(one.group, (0, 0))) == 1:
            continue
        if one.group and len(groups[one.group]) < network.npus:
            own = len(system.algorithms.get(one.kind, ())) == 1
            runs = "the system file's algorithm" if own else "a ring, whatever the system file has,"
            yield f"a communicator group of fewer than all NPUs runs {runs} with an endpoint delay of 10 ns"
            continue
        if one.kind in system.custom:
            continue
        for dim, chosen in enumerate(system.implementations(one.kind, len(network.dimensions))):
            kind, npus = network.dimensions[dim].kind, _extent(network, dim, chosen)
            if chosen.name != "ring":
                continue
            if one.kind == "all-to-all":
                yield (
                    f"an all-to-all by ring is {npus * (npus - 1) // 2} messages one after the other; direct sends "
                    f"{npus - 1} at once"
                )
            elif kind == "Ring" and system.queues == 1 and npus > 2:
                yield "a ring collective goes clockwise only: the other direction of every ring is idle"
