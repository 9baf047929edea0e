"""Keys of a sweep: found as it is read, so that no fabric is built again to look its points up."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.how import AS_USUAL
from sim.study import points
from sim.study.file import make_sweep, points_of
from sim.study.key import keyed, keyed_sweep, point_key
from sim.study.points import Kept
from sim.study.spec import Spec
from sim.study.store import Store
from sim.study.sweep import Tally, keyed_rows, run_sweep, status_of, sweep_rows

FABRICS, LINKS = 12, 8
RATES = [f"{41 + rate}Gb/s" for rate in range(FABRICS)]
SECTIONS = {
    "topology": {"spec": "ring:4", "link_bandwidth": RATES},
    "collective": {"algorithms": ["ring"]}, "model": {"chunks": 2}, "sweep": {"begin": "1K", "end": "2K"},
}


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The rate of each fabric that is built."""
    built: list[str | None] = []
    build = Spec.build_topology

    def counted(spec: Spec) -> object:
        built.append(spec.topology.link_bandwidth)
        return build(spec)

    monkeypatch.setattr(Spec, "build_topology", counted)
    return built


@pytest.mark.parametrize(("most_links", "times"), [(FABRICS * LINKS, 1), (FABRICS * LINKS - 1, 2), (0, 2)])
def test_a_fabric_is_built_to_read_and_run_its_points_and_never_to_look_them_up(
    most_links: int, times: int, builds: list[str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Once where all are kept; where they are not, once to read its points and once to run them."""
    monkeypatch.setattr(points, "_KEPT", Kept(most_links))
    swept = keyed(*points_of(SECTIONS, "sweep", AS_USUAL))
    assert builds == RATES
    with Store(tmp_path / "s.db") as store:
        assert run_sweep(swept.distinct, store) == Tally(computed=2 * FABRICS)
        assert builds == RATES * times
        assert run_sweep(swept.distinct, store) == Tally(stored=2 * FABRICS)
        assert status_of(swept, store).left == 0
        rows = keyed_rows(swept, store)
        assert builds == RATES * times
        assert rows == sweep_rows(swept.sweep, store)


def test_keys_are_those_of_the_points_however_they_are_read() -> None:
    sweep = make_sweep(SECTIONS)
    swept = keyed(*points_of(SECTIONS, "sweep", AS_USUAL))
    assert swept.sweep == sweep
    assert swept.keys == keyed_sweep(sweep).keys == tuple(map(point_key, sweep.points))
    assert swept.fabrics == ("ring:4",) * len(sweep.points)
    assert list(swept.distinct.values()) == list(sweep.points)
