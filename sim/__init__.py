"""When it arrives: engines, models, results."""

from sim.program.model import PRESETS, Model
from sim.result import Result
from sim.simulation import simulate

__all__ = ["PRESETS", "Model", "Result", "simulate"]
