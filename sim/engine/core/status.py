"""How a call of a kernel ends, and the values that stand for no time, nothing, and not on a stack."""

import numpy as np

from sim.program.contract import NEVER_PS

FINISHED, PAUSED, NEEDS_TOKENS, STUCK, OUT_OF_ORDER = range(5)
"""Status of a run: no task is left; a limit was reached; more tokens are needed; tasks are left and no event is; an
event was put into the past, which is a fault of a kernel."""

FAR = np.int64(NEVER_PS)
NONE = -1
UNSTACKED = -2
