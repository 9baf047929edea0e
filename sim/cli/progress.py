"""Progress on standard error: a bar on a terminal, plain lines elsewhere if asked for, nothing when quiet."""

import math
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from time import monotonic

from sim.cli.beats import LONG_SECONDS, SILENT_SECONDS, beating
from sim.program.outcome import SERVICES, Progress, Stopped
from topologies import WeftError
from topologies.stages import hearing
from topologies.units import counted

PLAIN_SECONDS = 1.0
"""Interval between plain lines."""

PACE_SECONDS = 5.0
"""How long a loop is watched before its pace tells anything, unless a good share of it is done."""

LEAST_ENDED = 0.05
"""Share of the flows that have ended before their pace tells anything: equal ones end all at the end."""

LEAST_SERVED, LEAST_SERVED_S = 0.01, 0.5
"""Share of the services, or for how long they were served, before their pace tells anything: kernels begin slowly."""

WIDE_BAR, NARROW_BAR = 40, 10
"""Columns of a bar, where the terminal has room for it and where not."""

OF_ENGINES = (SERVICES, "flows")
"""Units of what engines report; all others are counted by loops."""

OF_LOWERING = "operations"
"""What is counted before each run of a job: of many runs it tells nothing."""


class Steps:
    """Progress reports of a command: how many steps are done; nothing is shown."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.done = title, total, 0

    def begin(self, what: str) -> None:
        """Report the current step."""

    def advance(self, what: str) -> None:
        """Count a finished step."""
        self.done += 1

    def within(self, inside: Progress) -> None:
        """Report progress inside a long step."""

    def beat(self, what: str) -> None:
        """Report what is under way, where nothing else has been reported for a while."""


class _Warning(Steps):
    """One line, and only of a step that takes long."""

    def __init__(self, title: str, total: int) -> None:
        super().__init__(title, total)
        self.is_said, self.is_named, self.began = False, False, monotonic()

    def within(self, inside: Progress) -> None:
        if not self.is_said and self._seconds(inside) > LONG_SECONDS:
            self.is_said = True
            many = f"{inside.total_events:,} {inside.unit}, " if inside.unit in OF_ENGINES else ""
            print(f"{self.title}: {many}{_pace(inside)}", file=sys.stderr, flush=True)

    def _seconds(self, inside: Progress) -> float:
        """How long it takes, as far as that is known: what loops count takes unequal times."""
        taken = monotonic() - self.began
        if inside.unit in OF_ENGINES:
            return inside.seconds_left if _is_telling(inside) else taken
        return max(taken, inside.seconds_left) if _is_telling(inside) and taken > PACE_SECONDS else 0.0

    def beat(self, what: str) -> None:
        if not (self.is_said or self.is_named) and monotonic() - self.began > LONG_SECONDS:
            self.is_named = True
            print(f"{self.title}: {what}", file=sys.stderr, flush=True)


class _Plain(Steps):
    """At most one line every few seconds, and one at the end."""

    def __init__(self, title: str, total: int) -> None:
        super().__init__(title, total)
        self.last, self.heard = monotonic(), -math.inf

    def advance(self, what: str) -> None:
        super().advance(what)
        if self.done == self.total or monotonic() - self.last > PLAIN_SECONDS:
            self._line(what)

    def within(self, inside: Progress) -> None:
        self.heard = monotonic()
        if self.heard - self.last > PLAIN_SECONDS:
            self._line(f"then {_pace(inside)}")

    def beat(self, what: str) -> None:
        now = monotonic()
        if now - self.last > PLAIN_SECONDS and now - self.heard > SILENT_SECONDS:
            self._line(f"then {what}")

    def _line(self, what: str) -> None:
        self.last = monotonic()
        print(f"{self.title}: {self.done}/{self.total} done, {what}", file=sys.stderr, flush=True)


class _Loops:
    """Reports of long loops as progress inside a step."""

    def __init__(self, steps: Steps, of_runs: bool = False) -> None:
        self.steps, self.of_runs = steps, of_runs
        self.unit, self.last, self.total, self.runs = "", 0, 0, 0
        self.begun: dict[str, tuple[int, float, int]] = {}
        """By unit: how many were done when it was first heard, when that was, and how many are: loops are nested."""

    def __call__(self, unit: str, done: int, total: int) -> None:
        is_run = unit in OF_ENGINES
        self.runs += is_run and done == 0
        if self.of_runs and self.unit and (is_run or unit == OF_LOWERING):
            return  # one run of many tells nothing of the loop around them
        if is_run and done == 0:  # another run begins
            self.unit = ""
            self.begun.pop(unit, None)
            return
        now = monotonic()
        first, began, last = self.begun.get(unit, (done, now, done))
        if done < last:
            first, began = done, now
        self.begun[unit] = first, began, done
        if is_run and done == first:
            return  # its first slice, which may have loaded the kernel
        if not is_run and unit != OF_LOWERING:
            self.unit, self.last, self.total = unit, done, total
        taken = now - began
        tells = is_run or taken >= PACE_SECONDS or done >= LEAST_ENDED * total
        self.steps.within(Progress(done, total, 0, (done - first) / max(taken, 1e-9) if tells else 0.0, unit))

    def interrupted(self) -> str:
        """How far the loop came that was heard last, or how many runs there were."""
        begun = f", with {counted(self.runs, 'run')} of the engine begun" if self.runs else ""
        done = f", with {self.last:,} of {self.total:,} {self.unit}" if self.unit else begun
        return f"interrupted{done}; nothing was written"


@contextmanager
def progress(title: str, total: int, quiet: bool | None = False, *, of_runs: bool = False) -> Iterator[Steps]:
    """Progress over `total` steps, and of long loops inside them; Ctrl-C and limits report how many were done.

    `quiet`: True: nothing; False: a bar on a terminal, lines elsewhere; None: a bar on a terminal; elsewhere
    a line before what takes long.
    `of_runs`: whether its loops run the engine many times: how far it is, and where it was interrupted, is then said by
    the loop.
    """
    with _shown(title, total, quiet) as steps, hearing(loops := _Loops(steps, of_runs)), _heard_beats(steps):
        try:
            yield steps
        except KeyboardInterrupt:
            what = title.partition(": ")[2] or "steps"
            said = f"interrupted, with {steps.done} of {total} {what} done; nothing was written"
            raise WeftError(said if total > 1 else loops.interrupted()) from None
        except Stopped as wrong:
            of_several = f", in run {loops.runs} of the engine" if loops.runs > 1 else ""
            after = f", after {steps.done} of {total} points" if total > 1 else of_several
            if not isinstance(wrong.__context__, KeyboardInterrupt):
                wrong.args = (f"{wrong}{after}",)
            elif of_runs and loops.unit:
                wrong.args = (loops.interrupted(),)
            else:
                wrong.args = (f"{wrong}{after}; nothing was written",)
            raise


def _heard_beats(steps: Steps) -> AbstractContextManager[None]:
    return nullcontext() if type(steps) is Steps else beating(steps.beat)


def _shown(title: str, total: int, quiet: bool | None) -> AbstractContextManager[Steps]:
    if quiet or total < 1:
        return nullcontext(Steps(title, total))
    if sys.stderr.isatty() and find_spec("rich") is not None:  # an extra
        return _bar(title, total)
    return nullcontext((_Warning if quiet is None and not sys.stderr.isatty() else _Plain)(title, total))


def _share(inside: Progress) -> float:
    return inside.events / max(inside.total_events, 1)


def _is_telling(inside: Progress) -> bool:
    """Whether the pace so far says how long it will take; that of a loop is 0 until it does."""
    if inside.unit == SERVICES:
        return _share(inside) >= LEAST_SERVED or inside.events >= LEAST_SERVED_S * inside.events_per_s
    return inside.events_per_s > 0 if inside.unit not in OF_ENGINES else _share(inside) >= LEAST_ENDED


def _pace(inside: Progress) -> str:
    """How much of a long step is done, how fast, and how long it will take at that rate."""
    if inside.unit not in OF_ENGINES:
        left = f"{_left(inside)} at this rate" if _is_telling(inside) and _left(inside) else ""
        return f"{inside.events:,} of {inside.total_events:,} {inside.unit}{left}"
    if not _is_telling(inside):
        return f"{_share(inside):.0%}" + ("" if inside.unit == SERVICES else f" of its {inside.unit} ended")
    rate = inside.events_per_s
    pace = f"{rate / 1e6:.1f} M" if inside.unit == SERVICES else f"{rate:,.0f}"
    return f"{_share(inside):.0%} at {pace} {inside.unit}/s{_left(inside)}"


def _left(inside: Progress) -> str:
    """What it still takes; nothing at its end, for other stages may follow."""
    return f", {inside.seconds_left:.0f} s left" if inside.seconds_left >= 0.5 else ""


def _fitted(title: str, words: str, room: int) -> tuple[str, str]:
    """A title and what is under way in so many columns: the title is shortened first, but not its first word."""
    least = min(len(title), len(title.split(":")[0].split()[0]) + 1)
    title = _cut(title, max(room - len(words), least))
    return title, _cut(words, max(room - len(title), 1))


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


@contextmanager
def _bar(title: str, total: int) -> Iterator[Steps]:
    from rich.console import Console  # only at a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    wide = NARROW_BAR if console.width < 3 * WIDE_BAR else WIDE_BAR
    others = wide + 2 * len(str(total)) + len("/0:00:00") + 4  # with a space between each two
    counts = (BarColumn(wide), MofNCompleteColumn(), TimeElapsedColumn())
    label, words = (TextColumn(one, markup=False) for one in ("{task.fields[title]}", "{task.description}"))
    with Bars(label, *counts, words, console=console, transient=True) as bar:
        task = bar.add_task("", total=total, title=_fitted(title, "", console.width - others)[0])

        def tell(words: str, done: float) -> None:
            name, said = _fitted(title, words, console.width - others)
            bar.update(task, completed=done, description=said, title=name)

        class _Bar(Steps):
            heard, shown = monotonic(), 0.0

            def begin(self, what: str) -> None:
                tell(what, self.done)

            def advance(self, what: str) -> None:
                super().advance(what)
                tell(what, self.done)

            def within(self, inside: Progress) -> None:
                self.heard = monotonic()
                self.shown = self.done + _share(inside)
                tell(_pace(inside), self.shown)

            def beat(self, what: str) -> None:
                if monotonic() - self.heard > SILENT_SECONDS:
                    tell(what, max(self.shown, self.done))

        yield _Bar(title, total)
