"""One iteration of training as passes: the forward, input-gradient and weight-gradient work of a chunk on a microbatch.

Imports `workloads.models` and `topologies` only; what collectives take is asked of a function.
"""
