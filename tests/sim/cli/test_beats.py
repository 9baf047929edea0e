"""What a command says between its steps: what it does, now and then, and nothing while its steps speak."""

from __future__ import annotations

from threading import Event

import pytest

from sim.cli import main
from sim.cli.beats import beating, speaking
from topologies.stages import doing


class _Heard:
    """Words that were said, and an event once there are any."""

    def __init__(self) -> None:
        self.words, self.came = list[str](), Event()

    def __call__(self, words: str, **named: object) -> None:
        self.words.append(words)
        self.came.set()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.cli.beats.BEAT_SECONDS", 0.001)
    monkeypatch.setattr("sim.cli.beats.SILENT_SECONDS", 0)


@pytest.mark.usefixtures("at_once")
def test_what_is_between_the_steps_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = _Heard()
    monkeypatch.setattr("sim.cli.beats.print", heard, raising=False)
    with doing("topology"), speaking("topology", False):  # before the first beat, which may come at once
        assert heard.came.wait(60)
    assert heard.words[0] == "topology: 0 s in topology"


@pytest.mark.usefixtures("at_once")
def test_only_the_innermost_is_told() -> None:
    outer, inner = _Heard(), _Heard()
    with doing("proof"), beating(outer):
        with beating(inner):
            before = len(outer.words)  # nothing, unless this took longer than a beat
            while len(inner.words) < 20:
                assert inner.came.wait(60)
                inner.came.clear()
            assert len(outer.words) <= before + 1, "but what it was about to say"
        outer.came.clear()
        assert outer.came.wait(60)
    assert {*outer.words, *inner.words} == {"0 s in proof"}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("quiet", [True, None])
def test_nothing_is_said_unasked(quiet: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    """None: not at a terminal, and not yet long."""
    with speaking("topology", quiet), doing("topology"):
        Event().wait(0.05)
    assert capsys.readouterr().err == ""


def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    assert main(["topology", "--topology", "torus:20x20", "--plot", f"{tmp_path}/a.png"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "torus:20x20 has 400 nodes: at most 300" in said.err
