"""When everything happened: every chunk on every link, for pictures and for ui.perfetto.dev.

Imports `sim.lower` and `sim.program`.
"""
