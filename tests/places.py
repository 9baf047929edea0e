"""Folders that tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The checkout."""

DATA = ROOT / "tests" / "data"

SHARED = ROOT / ".." / "shared" / "data"
"""Files of other tools, beside the checkout on the machines that have them; the tests hold without them."""
