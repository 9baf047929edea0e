"""Which names of algorithms are files, and what results call them; what reads them is loaded where one is read."""

from pathlib import PurePath

SUFFIX = (".xml", ".json")
"""An algorithm name with one of these suffixes is a file."""


def called(name: str) -> str:
    """What results call an algorithm: a file by its name without folders."""
    return PurePath(name).name if name.endswith(SUFFIX) else name
