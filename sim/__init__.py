"""When it arrives: engines, models, results.

Imports `workloads`, `collectives` and `topologies`; none of them imports it.
"""

from topologies.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
