"""Iterations of VGG16 and BERT on 16 servers of 4 A100 each, as profiled for the released TopoOpt task graphs.

Pure data parallelism: every all-reduce spans the 16 servers, and begins when the GPUs of each have summed theirs. Times
in ms, sizes in bytes.
"""

from collections.abc import Sequence

from workloads.topoopt.carriage import Carriage, Iteration

_PS_PER_MS = 10**9

SUM_PS_PER_BYTE = 20
"""Of the sum among the 4 GPUs of a server: twice a quarter of the bytes at 200 Gb/s, as in the released task graphs."""

VGG16_FORWARD_MS = 29.5927

VGG16_BACKWARD: tuple[tuple[int, float, tuple[int, ...]], ...] = (
    (1, 0.003994, ()), (1, 0.097998, (16384000, 4000)), (1, 0.299520, (67108864, 16384)),
    (1, 3.785220, (1015021568, 16384)), (1, 0.031437, ()), (1, 3.041590, ()), (3, 3.299330, (9437184, 2048)),
    (1, 3.041590, ()), (2, 3.299330, (9437184, 2048)), (1, 3.299330, (4718592, 2048)), (1, 3.041590, ()),
    (2, 3.215360, (2359296, 1024)), (1, 3.215360, (1179648, 1024)), (1, 3.041590, ()), (1, 4.828160, (589824, 512)),
    (1, 4.828160, (294912, 512)), (1, 3.041590, ()), (1, 6.179840, (147456, 256)), (1, 6.179840, (6912, 256)),
)
"""Times over, backward time, all-reduces of each: last layer first."""

BERT_FORWARD_MS = 21.0352

BERT_BACKWARD_ORDER = "HDDAMDADMADMDAMDADMADMDAMDADMADMDAMDADMADMDAMDADMADMDAMDADMAM"

BERT_BACKWARD: dict[str, tuple[float, tuple[int, ...]]] = {
    "H": (0.048538, (3072, 4)), "D": (0.595354, (2359296, 3072)), "A": (0.055501, ()), "M": (1.435030, (9437184,)),
}
"""Head, dense, add, multi-head attention."""


def _chain(name: str, forward_ms: float, backward: Sequence[tuple[str, float, tuple[int, ...]]]) -> Iteration:
    """An iteration of 16 servers in which each operation waits for the one before it."""
    def add(to: Carriage) -> None:
        last = to.compute("forward", round(forward_ms * _PS_PER_MS))
        for name, ms, sizes in backward:
            last = to.compute(f"backward {name}", round(ms * _PS_PER_MS), after=[last])
            for at, size in enumerate(sizes):
                own = f"sum {at} of backward {name}"
                to.gradients(f"backward {name}", size,
                             to.compute(own, size * SUM_PS_PER_BYTE, after=[last], stream=own))

    return Iteration(name, 16, add)


def vgg16() -> Iteration:
    """VGG16, 16 servers: 1 157 409 952 B of all-reduce."""
    layers = [(ms, sizes) for times, ms, sizes in VGG16_BACKWARD for _ in range(times)]
    return _chain("VGG16-16", VGG16_FORWARD_MS, [(str(at), *layer) for at, layer in enumerate(layers, 1)])


def bert16() -> Iteration:
    """BERT, 16 servers: 226 569 220 B of all-reduce."""
    layers = [(f"{kind}{at}", *BERT_BACKWARD[kind]) for at, kind in enumerate(BERT_BACKWARD_ORDER)]
    return _chain("BERT-16", BERT_FORWARD_MS, layers)


MEASURED = {"VGG16-16": vgg16, "BERT-16": bert16}
