"""One iteration: the passes of a pipeline, then gradients, norm, optimizer and weights in the order of the frameworks.

A pass is made once for each distinct shape (layers, ends, kind) and used as one duration.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement, groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topologies.text.brief import one_line
from workloads.passes.layers import Layers
from workloads.passes.memory import Parameters, layer_parameters, outer_parameters, rank_parameters, stage_parameters
from workloads.passes.orders import Pass, Slot, order_of
from workloads.passes.plan import Plan
from workloads.passes.tape import Begun, Tape, Times, Wait, Work
from workloads.passes.timeline import Timed, Timeline, timeline

BUCKET = 40_000_000
"""Parameters of a bucket of gradients, or a million for each data-parallel rank where that is more (Megatron-LM)."""

BARRIER_BYTES = 8
INSIDE, BETWEEN = 0.15, 0.02
"""Shares that products lose beside traffic on NVLink and on NICs (calculon-ai/calculon caa4b11)."""

PAIRED = 132 / (132 - 20)
"""Of two passes beside each other, what products take while one sends: of 132 multiprocessors 20 are kept for what is
sent (DeepSeek-V3, arXiv 2412.19437, section 3.2.2)."""

WAITING, SENT, RECEIVED = "waiting for other stages", "pp send", "pp receive"


@one_line
@dataclass(frozen=True)
class Iteration:
    """What an iteration takes."""

    plan: Plan
    pipeline: Timeline  # from the first pass to the last
    parts: list[dict[str, int]]  # of each rank of the pipeline, in ps, by kind; each sums to the iteration
    # by stage and kind of a pass: its kernels and collectives
    scripts: dict[tuple[int, str], list[Work | Begun | Wait]]
    # of each rank, begin and end of the reductions of gradients behind or beside its passes, in ps
    reductions: list[list[tuple[int, int]]]
    compute: tuple[str, ...] = ("compute", "optimizer")  # kinds of parts that are computation; the others are exposed

    @property
    def time_ps(self) -> int:
        """Of the whole iteration: the parts of any rank sum to it."""
        return sum(self.parts[0].values())

    @property
    def time_s(self) -> float:
        """The same in seconds."""
        return self.time_ps / 1e12

    @property
    def figures(self) -> dict[str, float]:
        """See `Plan.figures`."""
        return self.plan.figures(self.time_s)

    @property
    def certificate(self) -> str:
        """Whether passes and messages may stand for themselves: each takes what it takes alone."""
        pairs = [f"{one} beside {', '.join(other for _, other in some)}"
                 for one, some in groupby(self.beside, lambda pair: pair[0])]
        return f"each collective and message as if alone; at once on a rank: {'; '.join(pairs) or 'none'}"

    @cached_property
    def beside(self) -> list[tuple[str, str]]:
        """Pairs of kinds of communication that a rank has at once, and of passes: none, and ports of its own, and all
        are alone."""
        found = {("pass", "pass") for mine in self.pipeline.ranks for one in mine if len(one.slot) > 1}
        for rank in range(len(self.parts)):
            spans = {kind: _Spans.of(some) for kind, some in sorted(self._spans(rank).items())}
            found.update(pair for pair in combinations_with_replacement(spans, 2) if pair not in found
                         and pair != (RECEIVED, SENT) and spans[pair[0]].meet(spans[pair[1]]))
        return sorted(found)

    def _spans(self, rank: int) -> dict[str, list[Any]]:
        """Begins and ends of communication at a rank by its kind, each (n, 2), in ps."""
        begins, found = defaultdict[tuple[int, str], list[int]](list), defaultdict[str, list[Any]](list)
        stages = order_of(self.plan.schedule).stages(self.plan.pp, self.plan.vp)[rank]
        for timed in self.pipeline.ranks[rank]:
            for one in timed.slot:
                begins[stages[one.chunk], one.kind].append(timed.begin)
        for key, at in begins.items():
            for call in self.scripts[key]:
                if isinstance(call, Begun):
                    found[call.named].append(np.add.outer(at, (call.begin, call.end)))
        for src, dst, begin, end, arrived in self.pipeline.messages:
            if rank in (src, dst):
                found[SENT if rank == src else RECEIVED].append([(begin, end if rank == src else arrived)])
        if self.reductions[rank]:
            found["dp gradients"].append(self.reductions[rank])
        return found

    @property
    def bubble(self) -> float:
        """Share of the iteration in which a rank waits for other stages, on average."""
        return sum(one.get(WAITING, 0) for one in self.parts) / len(self.parts) / self.time_ps


class _Spans(NamedTuple):
    """Spans of time in the order of their begins, (n,), in ps."""

    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    until: npt.NDArray[np.int64]  # the latest end so far

    @classmethod
    def of(cls, parts: Sequence[Any]) -> "_Spans":
        begin, end = (every := np.concatenate(parts).astype(np.int64))[np.argsort(every[:, 0], kind="stable")].T
        return cls(begin, end, np.maximum.accumulate(end))

    def meet(self, other: "_Spans") -> bool:
        """Whether one of these is under way with one of the others, or with another one of these."""
        if other is self:
            return bool(np.any(self.begin[1:] < self.until[:-1]))
        before = np.searchsorted(other.begin, self.end)  # of the others, begin before the end of each
        return bool(np.any(np.append(other.until, 0)[before - 1] > self.begin))


def iterate(plan: Plan, times: Times, *, beside: bool = True) -> Iteration:
    """The iteration of a plan.

    `times`: of collectives (see `Times`).
    `beside`: whether kernels beside collectives take longer.
    """
    return Passes(plan, times, beside).run()


_Key = tuple[int, tuple[int, ...], tuple[tuple[str, int], ...]]
"""What slots are alike: rank, chunks whose gradients are reduced after it, and kinds and chunks of its passes."""


class Passes:
    """The passes of a plan, and what follows them."""

    def __init__(self, plan: Plan, times: Times, beside: bool = True) -> None:
        self.plan, self.layers = plan, Layers(plan)
        self.inside, self.between, self.paired = beside * INSIDE, beside * BETWEEN, PAIRED if beside else 1.0
        self._asked, self._known, self._tapes = times, dict[tuple[str, float, str], int](), dict[object, Tape]()
        self.stages, self.ways = order_of(plan.schedule).stages(plan.pp, plan.vp), order_of(plan.schedule).ways

    def times(self, kind: str, size_bytes: float, group: str) -> int:
        """Time in ps of a collective of a size within a group, each asked for once."""
        key = kind, size_bytes, group
        if self.plan.groups[group].size == 1 or not size_bytes:
            return 0
        if key not in self._known:
            self._known[key] = self._asked(*key)
        return self._known[key]

    def slowed(self, group: str) -> float:
        """What kernels lose beside a collective: its kernels take multiprocessors, more of them inside a node."""
        return self.inside if self.plan.groups[group].stride < self.plan.node else self.between

    # --- passes

    def tape(self, stage: int, kind: str) -> Tape:
        """The pass of a stage, made once for each shape."""
        mine, model = self.plan.layers[stage], self.plan.model
        shapes = tuple((model.is_mixture(one), model.window(one), model.is_ahead(one), one % 2) for one in mine)
        key = kind, shapes, stage == 0, stage == self.last
        if key not in self._tapes:
            self._tapes[key] = self._made(stage, kind)
        return self._tapes[key]

    @property
    def last(self) -> int:
        """The last stage."""
        return self.plan.stages - 1

    def _made(self, stage: int, kind: str) -> Tape:
        tape, make = Tape(self.times, self.slowed, self.plan.pace), self.layers
        mine, first, last = self.plan.layers[stage], stage == 0, stage == self.last
        units = _Units(self, tape, mine, kind, outer_parameters(self.plan, stage))
        units.root()
        if kind == "F":
            if first:
                make.embed(tape, kind)
            for layer in mine:
                units.ready(layer)
                make.forward(tape, layer)
            if last:
                make.losses(tape, kind)
            return tape
        if last:
            make.losses(tape, kind)
        for layer in reversed(mine):
            units.ready(layer)
            make.backward(tape, layer, kind)
            units.reduce(layer)
        if first:
            make.embed(tape, kind)
        units.end()
        return tape

    def slot_parts(self, rank: int, slot: Slot) -> dict[str, int]:
        """Compute and exposed time of a slot; of two passes beside each other, what one sends while the other works."""
        tapes = [self.tape(self.stages[rank][one.chunk], one.kind) for one in slot]
        if len(tapes) == 1:
            return {"compute": tapes[0].compute, **tapes[0].exposed}
        exposed = Counter[str]()
        for one in tapes:
            exposed.update(one.exposed)
        compute, waits = sum(one.compute for one in tapes), sum(exposed.values())
        compute = round(compute * (self.paired if waits else 1.0))
        left = max(0, waits - compute)
        return {"compute": compute, **{kind: left * time // waits for kind, time in exposed.items() if left}}

    def message_ps(self, src: int, dst: int) -> int:
        """An activation, of which each tensor rank sends its share."""
        return self.times("send", self.layers.activation / self.plan.tp, "pp")

    # --- the iteration

    def run(self) -> Iteration:
        """The iteration, pass by pass."""
        plan, counts = self.plan, Counter[_Key]()
        parts: dict[_Key, dict[str, int]] = {}
        lengths: dict[_Key, int] = {}

        def duration(rank: int, slot: Slot) -> int:
            flushed = tuple(one.chunk for one in slot if self.flushes and self.is_last(one))
            key = rank, flushed, tuple(one[:2] for one in slot)
            counts[key] += 1
            if key not in parts:
                parts[key] = self.slot_parts(rank, slot)
                for chunk in flushed:
                    parts[key][self.reduction] = parts[key].get(self.reduction, 0) + self.reduction_ps(
                        stage_parameters(plan, self.stages[rank][chunk]))
                lengths[key] = sum(parts[key].values())
            return lengths[key]

        gather = 0 if plan.sequence_parallel else self.times("all-gather", self.layers.activation, "tp")
        pipeline = timeline(plan.schedule, plan.pp, plan.vp, plan.microbatches, duration, self.message_ps,
                            blocks=not plan.send_overlap, gather_ps=gather)
        totals = [Counter[str]() for _ in pipeline.ranks]
        for key, times in counts.items():
            totals[key[0]].update({kind: time * times for kind, time in parts[key].items()})
        reductions = [list(self._reductions(rank, mine)) for rank, mine in enumerate(pipeline.ranks)]
        for rank, (total, mine) in enumerate(zip(totals, pipeline.ranks, strict=True)):
            total[SENT] += sum(one.free - one.end for one in mine)
            total[WAITING] = mine[-1].free - sum(total.values())
            total[self.reduction] += max([0, *(end - mine[-1].free for _, end in reductions[rank])])
        self._finish(totals)
        kinds = {(self.stages[rank][chunk], kind) for rank, _, some in counts for kind, chunk in some}
        scripts = {one: self.tape(*one).script for one in sorted(kinds)}
        parts_ps = [{kind: time for kind, time in one.items() if time} for one in totals]
        return Iteration(plan, pipeline, parts_ps, scripts, reductions)

    @property
    def flushes(self) -> bool:
        """Whether a rank reduces the gradients of a chunk when it has ended, and waits."""
        return self.plan.stack.flushes and self.plan.zero == 2

    def is_last(self, one: Pass) -> bool:
        """Whether the gradients of a chunk are there after a pass."""
        return one.batch == self.plan.microbatches // self.ways - 1 and one.kind in ("BW", "W")

    @property
    def reduction(self) -> str:
        """What reduces gradients over the replicas."""
        return f"dp {'reduce-scatter' if self.plan.zero else 'all-reduce'}"

    def reduction_ps(self, parameters: Parameters) -> int:
        """Time of the reduction of some gradients, alone."""
        return sum(self.times(*one) for one in self.reduction_of(parameters))

    def reduction_of(self, parameters: Parameters) -> Iterator[tuple[str, float, str]]:
        """Collectives of gradients: scattered where ZeRO shares out what they update."""
        kind, width = "reduce-scatter" if self.plan.zero else "all-reduce", self.plan.gradient_bytes
        yield kind, parameters.dense * width, "dp"
        yield kind, parameters.experts * width, "edp"
        yield "all-reduce", parameters.dense * width / self.plan.groups["dp"].size, "rep"

    @property
    def gather_bytes(self) -> int:
        """Bytes of a parameter that is gathered."""
        return self.plan.stack.fp8_gather if self.plan.precision == "fp8" else 2

    def _reductions(self, rank: int, mine: list[Timed]) -> Iterator[tuple[int, int]]:
        """Begin and end of the reductions of gradients of a rank."""
        at = 0 if self.plan.data_overlap or self.flushes else mine[-1].free
        for ready, parameters in sorted(self._buckets(rank, mine)) if self.plan.zero != 3 else ():
            time = self.reduction_ps(parameters)
            at = ready - time if self.flushes else max(at, ready if self.plan.data_overlap else 0)
            yield at, (at := at + time)

    def _buckets(self, rank: int, mine: list[Timed]) -> Iterator[tuple[int, Parameters]]:
        """Gradients that are reduced together, and when they are there."""
        last: dict[int, tuple[int, int]] = {}
        for one in mine:
            for passed in one.slot:
                if self.is_last(passed):
                    last[passed.chunk] = one.begin, one.end
        for chunk, (begin, end) in last.items():
            buckets = self.buckets(self.stages[rank][chunk])
            for number, bucket in enumerate(buckets, start=1):
                yield begin + (end - begin) * number // len(buckets), bucket

    def buckets(self, stage: int) -> list[Parameters]:
        """Gradients of a stage that are reduced together, as they are there: after equal parts of its last pass."""
        whole = stage_parameters(self.plan, stage)
        cut = not self.flushes and (stage == 0 or self.plan.zero == 2)
        n = max(1, int(whole.all // self.bucket)) if cut else 1
        return [whole.times(1 / n)] * n

    @property
    def bucket(self) -> int:
        """Parameters of a bucket of gradients, as Megatron-LM has it."""
        return max(BUCKET, 1_000_000 * self.plan.dp)

    def _finish(self, totals: list[Counter[str]]) -> None:
        """What follows the last gradients; ranks of the pipeline wait where a collective has several of them."""
        for kind, amount, group in self.tail():
            name, time = (f"{group} {kind}", self.times(kind, amount, group)) if group else (kind, round(amount * 1e12))
            taking = self.across(group) or range(len(totals))
            met = max(sum(totals[rank].values()) for rank in taking)
            for rank in taking:
                if self.across(group):
                    totals[rank][WAITING] += met - sum(totals[rank].values())
                totals[rank]["norm all-reduce" if group == "all" else name] += time

    def across(self, group: str) -> Sequence[int]:
        """Ranks of the pipeline that a collective of a group joins; none if each has its own."""
        whole = range(self.plan.pp)
        return {"all": whole, "copies": whole, "ends": (0, self.plan.pp - 1)}.get(group, ())

    def tail(self) -> Iterator[tuple[str, float, str]]:
        """What follows the last gradient: collectives (kind, bytes, group), and "optimizer" (seconds, no group).

        Norms, tied embeddings, copies of stages, the norm of all gradients, the update, and weights updated by others.
        """
        plan, model = self.plan, self.plan.model
        if plan.sequence_parallel:
            norms = 2 * model.hidden * (2 if model.biases else 1) * max(map(len, plan.layers)) * plan.vp
            yield "all-reduce", norms * plan.gradient_bytes, "tp"
        if model.tied and plan.pp > 1:
            yield "all-reduce", model.vocabulary * model.hidden * plan.gradient_bytes / plan.tp, "ends"
        mine = [rank_parameters(plan, rank) for rank in range(plan.pp)]
        most = max(mine, key=lambda one: one.all)
        n, e = (plan.groups["dp"].size, plan.groups["edp"].size) if plan.zero else (1, 1)
        updated = max(one.dense / n + one.experts / e for one in mine)
        if self.ways == 2:  # every stage is on two ranks
            yield "all-reduce", updated * plan.gradient_bytes, "copies"
        yield "all-reduce", BARRIER_BYTES, "all"
        yield "optimizer", updated * plan.update_bytes / plan.device.hbm, ""
        if plan.zero in (1, 2):
            share = 1.0
            if plan.data_overlap:  # the first chunk is waited for, and the first bucket where that is cut
                first = stage_parameters(self.plan, 0)
                share = first.all / most.all
                if plan.pp == 1 or plan.zero == 2:
                    share *= 1 / max(1, first.all // self.bucket)
            dense, experts = most.times(share * self.gather_bytes)
            yield "all-gather", dense, "dp"
            yield "all-gather", experts, "edp"


class _Units:
    """FSDP: blocks whose weights are gathered one ahead, in every pass, and whose gradients are scattered behind.

    Without a pipeline the backward pass follows the forward one, and has the last block; with one, it gathers all.
    """

    def __init__(self, of: Passes, tape: Tape, mine: range, kind: str, outer: float) -> None:
        self.of, self.tape, self.mine, self.kind, self.outer = of, tape, mine, kind, outer
        self.on = of.plan.zero == 3
        self.kept = of.plan.pp == 1 and kind != "F"
        self.gathered: dict[int, list[Begun]] = {}
        self.last: list[Begun] = []
        self.copied = 0.0

    def _gather(self, layer: int) -> None:
        if layer in self.mine and self.kind != "W" and not (self.kept and layer == self.mine[-1]):
            width = self.of.gather_bytes
            dense, experts = layer_parameters(self.of.plan, layer)
            self.gathered[layer] = [self.tape.begin("all-gather", dense * width, "dp"),
                                    self.tape.begin("all-gather", experts * width, "edp")]

    def root(self) -> None:
        """Embedding and head are gathered before the first block of a forward pass, and kept for the backward one."""
        if self.on and self.kind == "F" and self.outer:
            self.tape.call("all-gather", 2 * self.outer, "dp")
        if self.on and self.mine:
            self._gather(self.mine[0 if self.kind == "F" else -1])

    def ready(self, layer: int) -> None:
        """Wait for the weights of a block, and have those of the next one gathered."""
        if not self.on:
            return
        for one in self.gathered.pop(layer, ()):
            self.tape.wait(one)
        if self.kind == "F":
            self._gather(layer + 1)
        elif self.kind == "B" or not self.of.plan.stack.late:
            self._gather(layer - 1)

    def reduce(self, layer: int) -> None:
        if self.on and self.kind != "B":  # whose gradients are those of what a stage received
            width = self.of.plan.gradient_bytes
            dense, experts = layer_parameters(self.of.plan, layer)
            if traffic := self.of.plan.stack.copies:
                self.tape.work("copies", (dense + experts) * traffic / self.of.plan.device.hbm)
            self.last = [self.tape.begin("reduce-scatter", dense * width, "dp"),
                         self.tape.begin("reduce-scatter", experts * width, "edp")]
            self._copies(dense * width)
            if self.of.plan.stack.late:
                self._gather(layer - 1)

    def _copies(self, size_bytes: float) -> None:
        """The shards of gradients of the copies are added up, at once or, of a loop of layers, behind it."""
        self.copied += size_bytes / self.of.plan.groups["dp"].size
        if not self.of.plan.stack.scanned:
            self.last.append(self.tape.begin("all-reduce", self.copied, "rep", self.last[0]))
            self.copied = 0.0

    def end(self) -> None:
        """The gradients of embedding and head are those of the last unit."""
        if self.on and self.kind != "B" and self.outer:
            size = self.outer * self.of.plan.gradient_bytes
            self.last.insert(0, self.tape.begin("reduce-scatter", size, "dp"))
            self._copies(size)
        for one in self.last:
            self.tape.wait(one)
        if self.copied:
            self.tape.call("all-reduce", self.copied, "rep")
