"""A function of a table is imported when it is called, and is what its name says."""

import pickle
import subprocess
import sys

import pytest

from tests.places import ROOT
from topologies.lazy import later


def test_a_function_named_for_later_is_the_function() -> None:
    gcd = later("math:gcd")
    assert gcd(12, 18) == 6
    assert pickle.loads(pickle.dumps(gcd))(35, 14) == 7
    assert later("builtins:sorted")([3, 1, 2], reverse=True) == [3, 2, 1]


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
