"""The engine's draws: a counter-based hash, so that what is drawn does not depend on the order of a run."""

import numpy as np

from sim.engine.compile.door import helper
from topologies.compiled import DISABLED

_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = 2**64 - 1
_U_STEP, _U_FIRST, _U_SECOND = np.uint64(_STEP), np.uint64(_FIRST), np.uint64(_SECOND)
_30, _27, _31, _1 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(1)


def _plain_mix(state: int) -> int:
    z = (state + _STEP) & _WORD
    z = (z ^ (z >> 30)) * _FIRST & _WORD
    z = (z ^ (z >> 27)) * _SECOND & _WORD
    return z ^ (z >> 31)


def _plain_draw(seed: int, what: int, task: int, chunk: int, hop: int, attempt: int) -> int:
    state = int(seed)
    for key in (what, task, chunk, hop, attempt):
        state = _plain_mix(state) ^ int(key)
    return _plain_mix(state) >> 1


@helper
def _mix(state):
    z = state + _U_STEP
    z = (z ^ (z >> _30)) * _U_FIRST
    z = (z ^ (z >> _27)) * _U_SECOND
    return z ^ (z >> _31)


@helper
def _word_draw(seed, what, task, chunk, hop, attempt):
    state = _mix(np.uint64(seed)) ^ np.uint64(what)
    state = _mix(state) ^ np.uint64(task)
    state = _mix(state) ^ np.uint64(chunk)
    state = _mix(state) ^ np.uint64(hop)
    state = _mix(state) ^ np.uint64(attempt)
    return np.int64(_mix(state) >> _1)


# Without the compiler a product that wraps is a warning of numpy's.
draw = _plain_draw if DISABLED else _word_draw
"""63 bits of (seed, what, task, chunk, hop, attempt)."""
