"""What the engines run: a program is arrays of servers, routes, tasks and dependencies, and this is how one is made.

Imports `topologies` only: `contract` says what the arrays mean, `cutting` how transfers become chunks, `assemble` how
columns become a program, and `builder` how one is built task by task.
"""

from topologies.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
