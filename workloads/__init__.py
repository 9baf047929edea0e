"""Why data moves: training workloads, their parallelism, and readers of foreign files.

Imports `collectives` and `topologies`.
"""

from topologies.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
