"""Files that a spec names: which they are; relative to the file of the spec, and absolute in what weft writes."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from collectives.core.pairs import SKEWS
from collectives.formats.names import SUFFIX
from sim.study.keys import SECTIONS, TENANT, keys_of
from topologies.formats.files import is_topology_file
from topologies.machines import PROFILES
from workloads.models import JOB_FILES, MODELS

MACHINE = "NAME|FILE.toml|FILE.xml[:NODES]"
MODEL = "NAME|FILE.json|FILE.toml|FILE.sh"

FILE_OR_NAME: dict[str, Callable[[str], bool]] = {
    "SPEC|FILE": is_topology_file,
    MACHINE: lambda text: any(suffix in text for suffix in PROFILES),
    "NAME|FILE": lambda text: text not in MODELS and text not in _operator_models(),
    MODEL: lambda text: text.endswith((".json", *JOB_FILES)),
    "SKEW|FILE.csv": lambda text: text.partition(":")[0] not in SKEWS,
    "NAME|FILE[,...]": lambda text: text.endswith(SUFFIX),
    **dict.fromkeys(
        ("FILE", "FILE.csv", "FILE.csv|FILE.parquet", "FILE.csv|FOLDER", "DIR", "PREFIX"), lambda text: text != "-"
    ),
}
"""By what stands for the value of a key in help: whether a text names a file."""


def _operator_models() -> Collection[str]:
    from workloads.topoopt import MODELS as OPERATOR_MODELS  # loads what searches for circuits

    return OPERATOR_MODELS


class NamedFile(NamedTuple):
    """A file that a key of a spec names."""

    section: str
    key: str
    name: str


def files_in(data: Mapping[str, Any]) -> Iterator[NamedFile]:
    """The files that sections name."""
    for section, keys in data.items():
        known = _metavars(section)
        for table in keys if isinstance(keys, list) else [keys]:
            for key, value in table.items() if isinstance(table, Mapping) else ():
                for name in _files(known.get(key), value):
                    yield NamedFile(section, key, name)


def _files(metavar: str | None, value: Any) -> Iterator[str]:
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _files(metavar, one)
    elif isinstance(value, str) and (is_file := FILE_OR_NAME.get(metavar or "")) and is_file(value):
        yield value.rpartition(":")[0] if metavar == MACHINE and not value.endswith(PROFILES) else value


def _metavars(section: str) -> Mapping[str, str]:
    """What stands for the value of each key of a section in help; empty if there is no such section."""
    if section == TENANT:
        workload, collective = _metavars("workload"), _metavars("collective")
        return {**workload, "name": "TEXT", "workload": workload["name"], "algorithm": collective["algorithms"]}
    return {name: key.metadata["metavar"] for name, key in keys_of(section).items()} if section in SECTIONS else {}


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
    def absolute(metavar: str | None, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [absolute(metavar, one) for one in value]
        is_file = FILE_OR_NAME.get(metavar or "")
        return os.path.abspath(folder / value) if is_file and isinstance(value, str) and is_file(value) else value

    def placed(section: str, keys: Any) -> Any:
        if isinstance(keys, Mapping):
            known = _metavars(section)
            return {name: absolute(known.get(name), value) for name, value in keys.items()}
        return [placed(section, table) for table in keys] if section == TENANT and isinstance(keys, list) else keys

    return {section: placed(section, keys) for section, keys in data.items()}
