"""Files that a spec names: relative to the file of the spec, and absolute in what weft writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from collectives.formats.files import SUFFIX
from sim.study.keys import SECTIONS, TENANT, keys_of
from topologies.formats.files import SUFFIXES
from workloads.models import MODELS
from workloads.topoopt import MODELS as OPERATOR_MODELS

FILE_OR_NAME: dict[str, Callable[[str], bool]] = {
    "SPEC|FILE": lambda text: text.endswith(SUFFIXES),
    "NAME|FILE.toml[:NODES]": lambda text: ".toml" in text,
    "NAME|FILE": lambda text: text not in MODELS and text not in OPERATOR_MODELS,
    "NAME|FILE[,...]": lambda text: text.endswith(SUFFIX),
    **dict.fromkeys(("FILE", "FILE.csv", "DIR", "PREFIX"), lambda text: text != "-"),
}
"""By what stands for the value of a key in help: whether a text names a file."""


def from_here(file: str) -> str:
    """A file by its name in the current folder where it lies below that, else by its absolute one.

    Examples
    --------
    >>> from_here(os.path.abspath("runs/a.txt")), from_here("/a.txt"), from_here("-")
    ('runs/a.txt', '/a.txt', '-')
    """
    absolute, here = os.path.abspath(file), os.path.join(os.getcwd(), "")
    return file if file == "-" else absolute.removeprefix(here)


def with_paths_from(folder: Path, data: Mapping[str, Any]) -> dict[str, Any]:
    """Sections in which files that are named relative to a folder have absolute names."""
    taken = {section: {name: key.metadata["metavar"] for name, key in keys_of(section).items()} for section in SECTIONS}
    of_tenant = taken["workload"] | {
        "name": "TEXT", "workload": taken["workload"]["name"], "algorithm": taken["collective"]["algorithms"]
    }

    def absolute(metavar: str | None, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [absolute(metavar, one) for one in value]
        is_file = FILE_OR_NAME.get(metavar or "")
        return os.path.abspath(folder / value) if is_file and isinstance(value, str) and is_file(value) else value

    def placed(section: str, keys: Any) -> Any:
        if isinstance(keys, Mapping):
            known = of_tenant if section == TENANT else taken.get(section, {})
            return {name: absolute(known.get(name), value) for name, value in keys.items()}
        return [placed(section, table) for table in keys] if section == TENANT and isinstance(keys, list) else keys

    return {section: placed(section, keys) for section, keys in data.items()}
