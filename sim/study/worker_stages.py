"""Stages of worker processes: each leaves its own in a folder when it ends, and the parent adds them up."""

from __future__ import annotations

import importlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.util import Finalize
from pathlib import Path

from topologies.stages import Profile, Stage, profiled, start_profile

OF_POINTS = "sim.study.points"
"""What the first point of a worker would import."""


@contextmanager
def gathered() -> Iterator[Path | None]:
    """The folder for the workers of a `with`, whose stages are added at its end; None where nobody asks for them."""
    if (profile := profiled()) is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="weft-stages-", ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        finally:
            _add_up(profile, Path(folder))


def measure_worker(folder: Path) -> None:
    """Measure this process from now on, and leave its stages in a folder when it ends in order."""
    begun = folder / str(os.getpid())
    begun.touch()
    profile = start_profile()
    with profile.stage("imports"):
        importlib.import_module(OF_POINTS)
    Finalize(None, _leave, args=(profile, begun), exitpriority=0)


def _leave(profile: Profile, begun: Path) -> None:
    stages = {name: vars(one) for name, one in profile.up_to_now().items()}
    whole = begun.with_suffix(".json")
    whole.write_text(json.dumps(stages), encoding="utf-8")
    whole.replace(begun)


def _add_up(profile: Profile, folder: Path) -> None:
    """One file for each worker that has begun, empty if it was ended before it could write."""
    for begun in folder.iterdir():
        if begun.suffix:
            continue
        if text := begun.read_text(encoding="utf-8"):
            profile.add({name: Stage(**one) for name, one in json.loads(text).items()})
        else:
            profile.unmeasured += 1
