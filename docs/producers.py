"""Files of other tools, and how much of them is read: the rows of `producers.toml`."""

from __future__ import annotations

import importlib
import json
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from topologies.text.schema import Absent
from workloads.formats import chakra_schema
from workloads.models import language


@dataclass(frozen=True)
class Producer:
    """A kind of file, and how much of it is read."""

    format: str
    tool: str  # who reads or writes it
    version: str  # that was read, with its date
    command: str  # how it is given to weft
    read: str  # what is read; {types} stands for the number of those of Hugging Face
    unread: str = ""  # what is not, and why
    absent: tuple[Absent, ...] = ()


@cache
def producers() -> tuple[Producer, ...]:
    """All, in the order of the page of formats."""
    rows = tomllib.loads((Path(__file__).parent / "producers.toml").read_text(encoding="utf-8"))["producer"]
    types = str(len(language.hugging_face_types()))
    return tuple(Producer(**row | {"read": row["read"].replace("{types}", types),
                                   "absent": _absent(row.get("absent", []))}) for row in rows)


def absent_of(tool: str) -> tuple[Absent, ...]:
    """What the tool whose name begins so takes where something is absent."""
    (found,) = (one.absent for one in producers() if one.tool.startswith(tool) and one.absent)
    return found


def _absent(said: Any) -> tuple[Absent, ...]:
    """Rows, those of "module:NAME" where a reader works with them, or of a schema that has them in other words."""
    if isinstance(said, list):
        return tuple(Absent(*row) for row in said)
    if said in OF_SCHEMAS:
        return tuple(OF_SCHEMAS[said]())
    module, name = said.split(":")
    return tuple(getattr(importlib.import_module(module), name))


def _of_chakra() -> Iterator[Absent]:
    for row in chakra_schema.ROWS:
        if row.absent is not None:
            yield Absent(", ".join(row.of), row.name, row.told, row.source)


def _of_hugging_face() -> Iterator[Absent]:
    for name, usual in (("num_key_value_heads", "num_attention_heads"),
                        ("head_dim", "hidden_size / num_attention_heads")):
        yield Absent("any type", name, "null", f"null is {usual}: configuration_llama.py")
    for kind, table in language.hugging_face_types().items():
        own = {key: value for key, value in table.items() if key not in language.OF_READER}
        if own:
            yield Absent(kind, ", ".join(own), ", ".join(map(json.dumps, own.values())),
                         f"transformers 5.24.0, configuration of {kind}")


OF_SCHEMAS: dict[str, Callable[[], Iterator[Absent]]] = {"chakra": _of_chakra, "hugging face": _of_hugging_face}
