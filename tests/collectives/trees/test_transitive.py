"""Ways into the nodes of one distance after the other are those of each distance alone."""

import numpy as np
import pytest

from collectives.trees.transitive import choices_by_distance, choices_of, distances_to_zero
from topologies import from_spec


@pytest.mark.parametrize("spec", ["ring:2", "ring:5", "torus:3x4", "torus:2x3x5", "fc:6", "hypercube:3"])
def test_ways_of_all_distances(spec: str) -> None:
    fabric = from_spec(spec)
    distance = distances_to_zero(fabric)
    found = list(choices_by_distance(fabric, distance))
    assert len(found) == distance.max()
    for far, (nodes, choices) in enumerate(found, 1):
        assert nodes.tolist() == np.flatnonzero(distance == far).tolist()
        assert choices == choices_of(fabric, distance, nodes)
