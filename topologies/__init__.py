"""What the network is: nodes, links, routes, and their costs in time.

Imports no other package of weft.
"""

from topologies.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
