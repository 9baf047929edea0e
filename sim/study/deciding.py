"""Defaults that decide who is the fastest: each is said beside the ranking that it decides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collectives import algorithm, in_network
from sim.study.spec import Spec
from sim.study.tables import Row, tied_with
from topologies import REDUCER, Topology


def deciding_defaults(spec: Spec, topology: Topology, rows: Sequence[Row]) -> list[str]:
    """One line for each default without which the fastest, or one tied with it, may be another.

    Of a single algorithm there is no ranking.
    """
    if len({row["algorithm"] for row in rows}) < 2:
        return []
    first = _winners(rows)
    notes = [_rate(spec, topology)] if in_network.NAME in first else []
    served = {row["algorithm"] for row in rows if row["discipline"] != "fifo"} & first
    if served and spec.model.discipline is None:
        notes.append(f"{_names(served)} with links that serve the lowest chunk first, others with fifo: --discipline "
                     "sets one for all")
    if not spec.chooses:
        slower = {row["algorithm"] for row in rows} - first
        designed = {name for name in slower if algorithm(name).discipline != "fifo"}
        if designed and spec.model.discipline is None:
            notes.append(f"{_names(designed)} with fifo, not the discipline of the design, "
                         f"{algorithm(min(designed)).discipline}")
        if in_network.NAME in slower and all(row["trees"] is None for row in rows):
            notes.append(f"{in_network.NAME} over one tree: --option trees=N, or --chunks auto tries several")
    if spec.build_model().deliver == "head":
        notes.append("with head delivery the service of the last chunk of a transfer does not count")
    return [note for note in notes if note]


def _rate(spec: Spec, topology: Topology) -> str:
    if spec.topology.aggregation_rate is not None or topology.aggregation or np.any(topology.kind == REDUCER):
        return ""
    return (f"{in_network.NAME} with switches or routers that reduce at any rate, which {topology.name} does not "
            "say of itself: --aggregation-rate")


def _winners(rows: Sequence[Row]) -> set[str]:
    """Algorithms that are the fastest at some size, or tied with it."""
    found: set[str] = set()
    for size in {row["size_bytes"] for row in rows}:
        here = sorted((row for row in rows if row["size_bytes"] == size), key=lambda row: float(row["time_s"]))
        found |= {here[0]["algorithm"], *tied_with(here)}
    return found


def _names(names: set[str]) -> str:
    return ", ".join(sorted(names))
