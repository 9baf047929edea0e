"""When it arrives: engines, models, results."""

from topologies.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
