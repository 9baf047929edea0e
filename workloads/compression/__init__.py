"""Gradient compression that can be reduced in transit: the lossless homomorphic codec, and its baselines.

Imports `topologies` only.
"""

from workloads.compression.codec import Aggregate, Codec, Decoded, Message, lossless_sum
from workloads.compression.index import Bitmap, NibbleSum
from workloads.compression.layout import CELLS_PER_ITEM, FORMS, Form, Layout, layout_for

__all__ = [
    "CELLS_PER_ITEM", "FORMS", "Aggregate", "Bitmap", "Codec", "Decoded", "Form", "Layout", "Message",
    "NibbleSum", "layout_for", "lossless_sum",
]
