"""Results of plans with measured kernels are of the content of the table."""

from pathlib import Path

from sim.study.key import _files
from sim.study.keys import IterationKeys
from sim.study.spec import Spec


def test_a_table_of_kernels_is_among_the_files_of_a_point(tmp_path: Path) -> None:
    spec = Spec(iteration=IterationKeys(model="llama-3-8b", kernels=str(tmp_path / "k.csv")))
    assert str(tmp_path / "k.csv") in _files(spec)
