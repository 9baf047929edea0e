"""When it arrives: engines, models, results."""

from sim.model import PRESETS, Model
from sim.result import Result
from sim.simulate import simulate

__all__ = ["PRESETS", "Model", "Result", "simulate"]
