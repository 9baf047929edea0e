"""Gradients of the models that gradient compression is measured with: how many values, and how many are nonzero.

Sizes and densities are those of the OmniReduce evaluation as we know them (Fei et al., SIGCOMM 2021, table 1, one
worker's gradient), and have not been checked against the paper; every function that takes a model takes others.
BERT-base has the density that is reported there for the larger BERT.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.papers.compression_sizes import Density, Elements, union_density
from topologies.checks import checked, choice, number


@checked
@dataclass(frozen=True)
class Gradient:
    """One model's gradient.

    Attributes
    ----------
    name : str
    n_elements : int
        Values of 32 bits.
    density : float
        Share of nonzeros of one worker.
    """

    name: str
    n_elements: Elements
    density: Density

    @property
    def size_bytes(self) -> int:
        """Bytes of the dense array."""
        return 4 * self.n_elements

    def union(self, workers: int, shared: float = 0.0) -> float:
        """Share of nonzeros in the union of all workers.

        `shared`: share of a worker's nonzeros that all workers have in common; the rest are independent. 0 is the
            densest union, 1 that of identical supports.
        """
        number(shared, "shared support", 0, 1)
        common = shared * self.density
        rest = (self.density - common) / (1 - common) if common < 1 else 0.0
        return common + (1 - common) * union_density(rest, workers)


GRADIENTS: dict[str, Gradient] = {
    one.name: one
    for one in (
        Gradient("ncf", 169_850_000, 0.154),
        Gradient("lstm", 398_500_000, 0.055),
        Gradient("vgg-19", 143_667_240, 0.68),
        Gradient("bert-base", 109_482_240, 0.9069),
    )
}
"""By name. VGG-19 and BERT-base by their published numbers of parameters."""


def gradient(name: str) -> Gradient:
    """The gradient of that name.

    Raises
    ------
    WeftError
        No such model.
    """
    return GRADIENTS[choice(name, GRADIENTS, "gradient")]
