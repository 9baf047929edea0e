"""Mirrored recursive doubling: 2D ports, half of them with the sign of every displacement flipped.

The multiport form that the Swing paper (NSDI 2024, section 4.1) compares against.
"""

from functools import partial

from collectives import recursive_doubling
from collectives.core.builders import EXCHANGED

NAME = recursive_doubling.MIRRORED
FORMS, ONLY_FORM = EXCHANGED

all_reduce = partial(recursive_doubling.all_reduce, mirrored=True)
reduce_scatter = partial(recursive_doubling.reduce_scatter, mirrored=True)
all_gather = partial(recursive_doubling.all_gather, mirrored=True)
