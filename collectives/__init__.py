"""What must move, in order: collectives, the schedules that do them, and their proof."""

from collectives import (
    bucket,
    dimension_wise,
    direct,
    hierarchical,
    mirrored_recursive_doubling,
    recursive_doubling,
    ring,
    swing,
    themis,
    tree,
)
from collectives.core.collective import COLLECTIVES, Collective
from collectives.core.pattern import Pattern
from collectives.core.proof import ScheduleError, prove
from collectives.core.schedule import ELEMENT_BYTES, Schedule
from collectives.core.symmetry import Action, Group
from collectives.core.transfers import WHOLE, Transfers, TransferTable
from collectives.custom import from_steps
from collectives.registry import ALGORITHMS, Algorithm, algorithm, algorithms_for, build

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "ELEMENT_BYTES",
    "WHOLE",
    "Action",
    "Algorithm",
    "Collective",
    "Group",
    "Pattern",
    "Schedule",
    "ScheduleError",
    "TransferTable",
    "Transfers",
    "algorithm",
    "algorithms_for",
    "bucket",
    "build",
    "dimension_wise",
    "direct",
    "from_steps",
    "hierarchical",
    "mirrored_recursive_doubling",
    "prove",
    "recursive_doubling",
    "ring",
    "swing",
    "themis",
    "tree",
]
