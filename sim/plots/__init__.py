"""Pictures of results; its names are loaded on first use, for it alone, and the papers, import matplotlib.

Imports results, timelines and designs; never `sim.study`, whose specs it uses through a protocol.
"""

from topologies.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
