"""What real machines are made of: GPUs, NICs and boxes as data (`*.toml`), and the fabrics that they make.

Imports `topologies.boxes`, `topologies.text` and `topologies.units`.
"""

PROFILES = (".toml", ".xml")
"""How files of machines end: profiles, and topologies of NCCL and RCCL."""
