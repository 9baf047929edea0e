"""A function of a table is imported when it is called, and is what its name says."""

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.import_graph import PACKAGES as ROOMS
from tests.places import ROOT
from topologies.lazy import _origins, later


def test_a_function_named_for_later_is_the_function() -> None:
    gcd = later("math:gcd")
    assert gcd(12, 18) == 6
    assert pickle.loads(pickle.dumps(gcd))(35, 14) == 7
    assert later("builtins:sorted")([3, 1, 2], reverse=True) == [3, 2, 1]


@pytest.mark.parametrize("stub", sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.pyi")), ids=str)
def test_a_stub_read_word_by_word_says_what_python_reads(stub: Path) -> None:
    nodes = [one for one in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(one, ast.ImportFrom)]
    assert _origins(stub) == {name.asname: (node.module, name.name) for node in nodes for name in node.names}


def test_its_module_is_loaded_at_the_call_and_not_before() -> None:
    code = (
        "import sys\nfrom topologies.lazy import later\nfind = later('this:d.get')\n"
        "before = 'this' in sys.modules\nfind('A')\nprint(before, 'this' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "False True"


def test_a_name_that_is_not_there_is_an_error_at_the_call() -> None:
    missing = later("math:no_such_name")
    with pytest.raises(AttributeError, match="no_such_name"):
        missing()
