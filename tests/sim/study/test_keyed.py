"""Keys of a sweep: found as it is read, so that no fabric is built again to look its points up."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.how import AS_USUAL
from sim.study import points
from sim.study.export import keyed_rows, status_of, sweep_rows
from sim.study.file import make_sweep, points_of
from sim.study.key import point_key
from sim.study.keyed import keyed, keyed_sweep
from sim.study.spec import Spec
from sim.study.store import Store
from sim.study.sweep import Tally, run_keyed

FABRICS = 12
SECTIONS = {
    "topology": {"spec": "ring:4", "link_bandwidth": [f"{41 + rate}Gb/s" for rate in range(FABRICS)]},
    "collective": {"algorithms": ["ring"]}, "model": {"chunks": 2}, "sweep": {"begin": "1K", "end": "2K"},
}


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The rate of each fabric that is built, where few are kept."""
    built: list[str | None] = []
    build = Spec.build_topology

    def counted(spec: Spec) -> object:
        built.append(spec.topology.link_bandwidth)
        return build(spec)

    monkeypatch.setattr(Spec, "build_topology", counted)
    monkeypatch.setattr(points, "MOST_SMALL_LINKS", 0)
    points._small.cache_clear()
    points._built.cache_clear()
    return built


def test_a_fabric_is_built_to_read_its_points_and_to_run_them_and_never_to_look_them_up(
    builds: list[str | None], tmp_path: Path
) -> None:
    rates = SECTIONS["topology"]["link_bandwidth"]
    swept = keyed(*points_of(SECTIONS, "sweep", AS_USUAL))
    assert builds == rates
    with Store(tmp_path / "s.db") as store:
        assert run_keyed(swept.distinct, store) == Tally(computed=2 * FABRICS)
        assert builds == rates * 2
        assert run_keyed(swept.distinct, store) == Tally(stored=2 * FABRICS)
        assert status_of(swept, store).left == 0
        rows = keyed_rows(swept, store)
        assert builds == rates * 2
        assert rows == sweep_rows(swept.sweep, store)


def test_keys_are_those_of_the_points_however_they_are_read() -> None:
    sweep = make_sweep(SECTIONS)
    swept = keyed(*points_of(SECTIONS, "sweep", AS_USUAL))
    assert swept.sweep == sweep
    assert swept.keys == keyed_sweep(sweep).keys == tuple(map(point_key, sweep.points))
    assert swept.fabrics == ("ring:4",) * len(sweep.points)
    assert list(swept.distinct.values()) == list(sweep.points)
