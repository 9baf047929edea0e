"""What must move, in what order: collectives, the schedules that implement them, and their proof.

Imports `topologies`.
"""

from topologies.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
