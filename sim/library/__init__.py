"""What a collective library would do on a machine: its choice of algorithm and protocol, and the time that it takes.

Imports `topologies.machines` and `collectives`; nothing is simulated here.
"""
