"""Pictures of results. Nothing outside this package and the papers imports matplotlib.

The names are loaded on first use: a command that draws nothing does not pay for the library.

Imports results, timelines and designs; never `sim.study`, whose specs it uses through a protocol.
"""

from topologies.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
