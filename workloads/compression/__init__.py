"""Gradient compression that can be reduced in transit: the lossless homomorphic codec, and its baselines.

Imports `topologies` only.
"""

from workloads.compression.codec import Aggregate, Codec, Decoded, Message, lossless_sum
from workloads.compression.index import Bitmap, Bloom, NibbleSum, bloom_for
from workloads.compression.layout import CELLS_PER_ITEM, FORMS, Form, Layout, layout_for, published_layout

__all__ = [
    "CELLS_PER_ITEM", "FORMS", "Aggregate", "Bitmap", "Bloom", "Codec", "Decoded", "Form", "Layout", "Message",
    "NibbleSum", "bloom_for", "layout_for", "lossless_sum", "published_layout",
]
