"""One table of options: each is a field, an argument, a key, a flag and a line of the reference, with one meaning."""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import simulate
from sim.cli.asked import spec_of
from sim.cli.flags import command_parser
from sim.program.model import Model, Nic, make_model
from sim.program.model_options import OPTIONS, Option
from sim.study.keys import KINDS, flags_of, keys_of
from sim.study.spec import Spec
from tests.places import ROOT
from topologies import WeftError

OF_UNITS = {"SIZE": ("1KiB", "9000B", "1MiB"), "TIME": ("0s", "1.5us"), "RATE": ("1GB/s", "400Gb/s")}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_everywhere(name: str) -> None:
    row = OPTIONS[name]
    assert inspect.signature(simulate).parameters[name].default is None
    begins = re.escape(row.help.partition(";")[0][:20])
    assert re.search(rf"^    {name}\n        {begins}", simulate.__doc__ or "", re.MULTILINE)
    key = keys_of("model")[name]
    assert (key.metadata["help"], key.metadata["metavar"], key.metadata["default"]) == (
        row.help, row.metavar, row.default)
    flag, = flags_of(key)
    action, = (one for one in command_parser("compare")._actions if flag in one.option_strings)
    assert row.help.partition(";")[0] in (action.help or "")
    assert re.search(rf"^\| `{name}` \| `{flag}` \| .*{re.escape(row.help)} \|$",
                     (ROOT / "docs/reference/spec.md").read_text(), re.MULTILINE)


def test_each_field_has_an_option() -> None:
    fields = {*Model.__dataclass_fields__, *(f"nic.{name}" for name in Nic.__dataclass_fields__)}
    assert {row.field for row in OPTIONS.values()} == fields
    for kind in (Model, Nic):
        assert all(f"\n    {name}\n        " in (kind.__doc__ or "") for name in kind.__dataclass_fields__)


def values_of(row: Option) -> st.SearchStrategy[Any]:
    if row.choices:
        return st.sampled_from(row.choices)
    if row.metavar in OF_UNITS:
        return st.sampled_from((*OF_UNITS[row.metavar], *(("unlimited",) if row.default == "unlimited" else ())))
    return st.booleans() if row.kind == "flag" else st.integers(1, 2)


def model_of(make: Any) -> Model | str:
    try:
        found = make()
    except WeftError as error:
        return str(error)
    assert isinstance(found, Model)
    return found


@given(st.fixed_dictionaries({}, optional={name: values_of(row) for name, row in OPTIONS.items()}))
def test_three_spellings_are_one_model(options: dict[str, Any]) -> None:
    def flags() -> list[str]:
        of_value = {True: "--", False: "--no-"}
        return [
            f"{of_value[value]}{name}" if isinstance(value, bool) else f"{flags_of(keys_of('model')[name])[0]}={value}"
            for name, value in options.items()
        ]

    text = "\n".join(["[model]", *(f"{name} = {json.dumps(value)}" for name, value in options.items())])
    words = ["--topology", "ring:4", *flags()]
    told = model_of(lambda: make_model(**options))
    assert model_of(lambda: Spec.from_dict(tomllib.loads(text)).build_model()) == told
    assert model_of(lambda: spec_of(command_parser("compare").parse_args(words)).build_model()) == told


@given(st.sampled_from([*OPTIONS]), st.data())
def test_an_option_is_refused_by_its_name_where_what_it_needs_is_missing(name: str, data: st.DataObject) -> None:
    row = OPTIONS[name]
    value = data.draw(values_of(row))
    found = model_of(lambda: make_model(**{name: value}))
    if row.field.startswith("nic."):
        assert found == f"{name} {value}: is of a NIC, and there is none: give nic shared as well"
    elif isinstance(found, str):
        assert row.needs
        assert re.match(rf"{name}\b.*: {re.escape(row.needs[0].otherwise)}$", found)


def test_a_value_of_no_use_is_told_by_its_option() -> None:
    for options, said in (
        ({"credit_latency": "1us"}, "credit_latency 1 us: is of buffers, and there are none: give buffer as well"),
        ({"bubble": True}, "bubble: is about buffers of links with one virtual channel: give a buffer, and no vcs"),
        ({"rank_progress": "any"}, "rank_progress any: is about the order of posts: it needs nic shared"),
    ):
        assert model_of(lambda given=options: make_model(**given)) == said


def test_kinds_are_those_of_keys() -> None:
    assert {row.kind for row in OPTIONS.values()} <= KINDS.keys()
    with pytest.raises(WeftError, match=r"make_model has no argument 'bubbl': .*\(did you mean bubble\?\)"):
        make_model(bubbl=True)
