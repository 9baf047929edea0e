"""Parallelism, and how its groups map to the dimensions of a network.

Ranks count tensor parallelism fastest, then data, then pipeline stages, as LIBRA's automatic mapping does for the
first two: tensor groups fill dimensions from the innermost, the last of them possibly in part.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated

from topologies.checks import Count, Integer, WeftError, checked, told
from topologies.text.brief import one_line
from workloads.workload import Groups

TENSOR, DATA, PIPELINE, EXPERT, EXPERT_DATA = "tp", "dp", "pp", "ep", "edp"


@checked
@one_line
@dataclass(frozen=True)
class Parallelism:
    """Sizes of the groups.

    Attributes
    ----------
    tp, dp, pp : int
        Tensor, data and pipeline parallelism; their product is the number of NPUs.
    ep : int
        Expert parallelism, a part of the data-parallel group.
    zero : {0, 1, 2, 3}
        ZeRO stage: 0 reduces gradients everywhere; 1 and 2 scatter those of each layer and gather the weights when
        all gradients of the NPU are reduced, as their norm comes first; 3 gathers the weights of a layer before its
        forward and before its backward pass.
    """

    tp: Count = 1
    dp: Count = 1
    pp: Count = 1
    ep: Count = 1
    zero: Annotated[int, Integer(0, 3)] = 0

    def __post_init__(self) -> None:
        if self.dp % self.ep:
            raise WeftError(f"parallelism ep={self.ep} must divide dp={self.dp}: experts are spread over data ranks")

    @property
    def n_npus(self) -> int:
        """NPUs of all groups."""
        return self.tp * self.dp * self.pp

    def groups(self, extents: Sequence[int]) -> Groups:
        """NPUs of each group in each dimension.

        Raises
        ------
        WeftError
            The product is not the number of NPUs, or a group does not divide the dimensions that it meets.
        """
        if self.n_npus != math.prod(extents):
            product = f"tp={self.tp} x dp={self.dp} x pp={self.pp}"
            raise WeftError(f"{product} is {self.n_npus} NPUs; the network has {math.prod(extents)}")
        left = list(extents)
        found = {TENSOR: _fill(left, self.tp, TENSOR)}
        if self.ep > 1:
            found[EXPERT] = _fill(left, self.ep, EXPERT)
            found[EXPERT_DATA] = _fill(left, self.dp // self.ep, EXPERT_DATA)
            pairs = zip(found[EXPERT], found[EXPERT_DATA], strict=True)
            found[DATA] = tuple(inner * outer for inner, outer in pairs)
        else:
            found[DATA] = _fill(left, self.dp, DATA)
        found[PIPELINE] = _fill(left, self.pp, PIPELINE)
        return found


def _fill(left: list[int], size: int, name: str) -> tuple[int, ...]:
    """Take `size` NPUs from the innermost dimensions that have room left."""
    taken = [1] * len(left)
    for dim, room in enumerate(left):
        share = math.gcd(size, room)
        if share < min(size, room):
            raise WeftError(f"group {name}: {size} NPUs are left to place, and dimension {dim + 1} has room for {room}")
        taken[dim], left[dim] = share, room // share
        size //= share
    return tuple(taken)


HSDP = "hsdp"

SCHEMES = {"ddp": 0, "zero0": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "fsdp2": 3, HSDP: 3}
"""Stages of ZeRO by what training frameworks call them; HSDP shards within each of several copies."""


def plain_scheme(text: str) -> str:
    """A name without its case and marks, which frameworks write in many ways: "ZeRO-3", "zero_3"."""
    return re.sub(r"[-_ =]", "", text.lower())


def zero_stage(value: int | str) -> int:
    """The stage of ZeRO of a number or a name; WeftError: it is neither."""
    plain = str(value)
    stage = int(plain) if plain.isdecimal() else SCHEMES.get(plain_scheme(plain), -1)
    if not 0 <= stage <= 3:
        raise WeftError(f"zero {told(value)} is unknown: a stage from 0 to 3, or one of {', '.join(SCHEMES)}")
    return stage


@checked
def parse_parallelism(text: str, n_npus: int) -> Parallelism:
    """Parallelism from text: "tp=16,dp=256,zero=1", or "tp=16,fsdp"; a missing dp is inferred from the number of NPUs.

    Raises
    ------
    WeftError
        An unknown name or a value that is not an integer.
    """
    names = [field.name for field in fields(Parallelism)]
    values: dict[str, int] = {}
    for part in filter(None, (word.strip() for word in text.split(","))):
        name, _, value = part.partition("=")
        if (scheme := plain_scheme(part)) in SCHEMES:
            name, value = "zero", scheme
        if name == "zero" and plain_scheme(value) == HSDP:
            raise WeftError(f"parallelism {part!r}: copies of shards are of weft train --model (--zero hsdp "
                            "--replicas N); here there is fsdp")
        if name not in names or not (value.isdecimal() or name == "zero"):
            accepted = ", ".join(names)
            raise WeftError(f"parallelism {part!r}: write name=number with one of {accepted}, or one of "
                            f"{', '.join(SCHEMES)}, with commas")
        if name != "zero" and not int(value):
            raise WeftError(f"parallelism {text!r}: {name} is 0: give an integer from 1")
        if name in values:
            raise WeftError(f"parallelism {text!r}: {name} is given twice")
        values[name] = zero_stage(value) if name == "zero" else int(value)
    others = values.get("tp", 1) * values.get("pp", 1)
    if "dp" not in values:
        if n_npus % others:
            raise WeftError(f"parallelism {text!r}: {n_npus} NPUs are not a multiple of tp x pp = {others}")
        values["dp"] = n_npus // others
    return Parallelism(**values)
