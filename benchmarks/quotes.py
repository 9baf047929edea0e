"""What README and docs/performance.md quote of the tables: `python -m benchmarks.quotes` writes it anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from benchmarks import bounds, flows, peers, speed, start, tables
from benchmarks.stages import COMMANDS
from benchmarks.tables import cell, rows_of
from topologies.units import parse_size

ROOT = Path(__file__).parents[1]
Row = tuple[str, str]

ENGINE, RATE, FLOWS = "Chunk engine", "engine M/s", "Fluid engine, no symmetry"
PYTHON, PLAIN = (f"Against {what}, in one process" for what in ("plain Python", "a plain C++ loop"))
STAGES, POINTS, BOUNDS = "Stages of commands, CPU s", "Points of a sweep", "Bounds beside runs"
FIRST, CODEC = "From the command line to the first number", "Homomorphic codec, 16 MiB, one core"
MEMORY = "Memory without symmetry, one chunk per transfer"
SCALE = "All-reduce of 1 GiB, one chunk per transfer, exact by symmetry"
EXACT = "Exact bounds and packed trees"
TREES = (bounds.TREES, "random-regular:256x4x1"), (bounds.TREES_ALIKE, "torus:64x64")
MILLION = "1,048,576"

RING, ALL, OWN, PRIORITY = (case.name for case in speed.CASES)
SMALL = speed.SMALL_CASES[0].name


class Found:
    """The tables of a file."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts

    def __call__(self, title: str, row: str | tuple[str, ...], column: str) -> str:
        return cell(self.texts, title, row, column)

    def whole(self, title: str, row: str, column: str) -> str:
        """Rounded to an integer."""
        return rounded(self(title, row, column))

    def column(self, title: str, column: str, holds: str = "") -> list[str]:
        """A column, of the rows that have a cell."""
        head, *lines = rows_of(self.texts, title)
        return [line[head.index(column)] for line in lines if not holds or holds in line]

    def numbers(self, title: str, column: str, holds: str = "") -> list[float]:
        """The same as numbers."""
        return [float(one.replace(",", "")) for one in self.column(title, column, holds)]

    def sizes(self, title: str, column: str, holds: str) -> tuple[str, str]:
        """The least and the most of a column of sizes."""
        parts = (size.split() for size in self.column(title, column, holds))
        found = sorted(float(number) * parse_size(f"1{unit}", column) / 2**30 for number, unit in parts)
        return f"{found[0]:.2f}", f"{found[-1]:.1f}"


def rounded(number: str | float, places: int = 0) -> str:
    """A number of a table with fewer places, halves upward: of 0.85 a reader expects 0.9, and its float is below."""
    exact = Decimal(str(number).replace(",", ""))
    return f"{exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP):,}"


def span(found: Sequence[float], places: int = 0) -> str:
    """The least and the most."""
    return f"{rounded(min(found), places)} to {rounded(max(found), places)}"


def of_readme(at: Found) -> Iterator[Row]:
    """The table of README."""
    least, most = at.sizes(SCALE, "peak memory", MILLION)
    yield "ring of 256 NPUs, 16 chunks", (
        f"{at.whole(ENGINE, RING, RATE)} million chunk-hops per second on one core")
    yield "`compare` without symmetry: ring of 2,048; on random-regular:1024", of_memory(at)
    yield "all-to-all on a 16x16 torus, 16 chunks per pair", (
        f"{at.whole(ENGINE, ALL, RATE)} million per second; in turn with a plain C++ loop {against(at, ALL)}")
    yield "the same, every link with its own bandwidth", (
        f"{at.whole(ENGINE, OWN, RATE)} million per second; in turn with the C++ loop {against(at, OWN)}")
    yield "against a 40-line heapq loop, and the SimPy reference (ring of 64)", (
        f"{ratios(at)[0]} and {ratios(at)[1]} times as fast")
    sides = ", ".join(f"{side}x{side}" for _, side, _ in peers.TORUS)
    for peer, whole in (("ASTRA-sim", "ASTRA-sim's engine"), ("SimGrid", "SimGrid")):
        yield f"CPU of {whole} over that of weft, processes: ring of 64, 256, 1,024, 4,096; all-to-all on {sides}", (
            f"by symmetry {beside(at, f'{peer} / weft')}; every rank simulated {beside(at, f'{peer} / no symmetry')}")
    yield "`compare`, four algorithms at 14 sizes on a 64x64 torus", f"{at(STAGES, COMMANDS[0], 'CPU s')} s of CPU"
    for name, command in (("first number, one small collective", start.FIRST),
                          ("first number, the first command above", start.README)):
        yield name, (
            f"wheel just installed: {first(at, command, start.INSTALLED)} s of user CPU; checkout with nothing "
            f"compiled: {first(at, command, start.CHECKOUT)} s")
    yield "sweep over bandwidths, 64 NPUs", (
        f"{span(at.numbers(POINTS, 'points per CPU second'))} points per second of CPU")
    yield "[exact bound](docs/reference/bounds.md) for 1,024 NPUs", (
        f"at most {rounded(max(at.numbers(EXACT, 'CPU s', bounds.BOUND)), 1)} s of CPU")
    yield "packed trees of random-regular:256x4; of torus:64x64, whose NPUs are alike", "; ".join(
        rounded(at(EXACT, row, "CPU s"), 1) for row in TREES) + " s of CPU"
    yield "all-reduce over 1,048,576 NPUs, exact by symmetry", (
        f"{span(at.numbers(SCALE, 'CPU s', MILLION), 1)} s of CPU, {least} to {most} GiB")


def of_memory(at: Found) -> str:
    """Of the ring of 2,048, whose row is the second, and of the other."""
    one, other = at.numbers(MEMORY, "bytes per transfer beyond the imports")
    return f"{rounded(other)}; {rounded(one)} bytes per transfer at the peak of the command, imports left out"


def against(at: Found, case: str) -> str:
    """Beside the C++ loop, in one process."""
    ours, theirs = (at(PLAIN, case, f"{one} M/s") for one in ("engine", "C++"))
    return f"{at(PLAIN, case, 'ratio')} times its rate ({ours} and {theirs})"


def beside(at: Found, column: str) -> str:
    """Of the rings, and of the tori."""
    return "; ".join(", ".join(at(peers.TITLE, peers.named(kind, n), column) for kind, n, _ in cases)
                     for cases in (peers.RING, peers.TORUS))


def ratios(at: Found) -> tuple[str, str]:
    """Of the ring of 64: against the heapq loop, whose column is the last, and the SimPy reference."""
    cells = next(line for line in rows_of(at.texts, PYTHON) if line[0] == SMALL)
    return rounded(cells[6]), rounded(cells[4])


def first(at: Found, command: str, compiled: str) -> str:
    return rounded(at(FIRST, (command, compiled), "user CPU s"), 1)


def of_performance(at: Found) -> Iterator[Row]:
    """The table of docs/performance.md."""
    yield from of_engine(at)
    yield from of_surroundings(at)
    least, most = at.sizes(SCALE, "peak memory", MILLION)
    encode, peel = (at.numbers(CODEC, column, "spread") for column in ("encode GB/s", "peel ns per nonzero"))
    yield "all-reduce of 1,048,576 NPUs, from building the topology to the result", (
        f"{span(at.numbers(SCALE, 'CPU s', MILLION), 1)} s of CPU, {least} to {most} GiB")
    yield "`compare` without symmetry: ring of 2,048; on random-regular:1024", of_memory(at)
    for sizes in ("equal sizes", "sizes at random up to 4 MiB"):
        rows = [f"{fabric}, {sizes}" for fabric in flows.FABRICS]
        yield f"flows (`--engine fluid`), all-to-all without symmetry, {sizes}", ", ".join(
            f"{at(FLOWS, row, 'flows')} in {at(FLOWS, row, 'CPU s')} s" for row in rows) + " of CPU"
    yield "homomorphic codec, 16 MiB, 1.23 cells per item, unions of 1 to 57 %", (
        f"encode {rounded(max(encode), 1)} to {rounded(min(encode), 1)} GB/s, peel {span(peel)} ns per nonzero")


def of_engine(at: Found) -> Iterator[Row]:
    """Its rows of runs."""
    yield "ring of 256, 64 MiB, 16 chunks", (
        f"{at(ENGINE, RING, RATE)} million chunk-hops per second; "
        f"{at.whole(ENGINE, RING, 'bytes per transfer')} bytes per transfer of program and state alone")
    yield "all-to-all on 16x16, 1 MiB per pair, 16 chunks", (
        f"{at(ENGINE, ALL, RATE)} million; {at.whole(ENGINE, ALL, 'bytes per transfer')} bytes per transfer likewise; "
        f"in turn with a plain C++ loop {against(at, ALL)}")
    yield "the same, every link with its own bandwidth", (
        f"{at(ENGINE, OWN, RATE)} million; in turn with the C++ loop {against(at, OWN)}")
    yield "the same, equal links, served by 255 priorities", (
        f"{at(ENGINE, PRIORITY, RATE)} million")
    yield "ring of 64, against a 40-line heapq loop and the SimPy reference", (
        f"{ratios(at)[0]} and {ratios(at)[1]} times as fast")


def of_surroundings(at: Found) -> Iterator[Row]:
    """Its rows of what is around runs."""
    yield "assembling the first three programs from their columns", (
        ", ".join(at(ENGINE, name, "program built, s") for name in (RING, ALL, OWN)) + " s")
    sides = at.column(BOUNDS, rows_of(at.texts, BOUNDS)[0][0])
    run = f"one all-reduce of 64 MiB in 16 chunks on tori of {', '.join(sides)}"
    yield f"bounds / engine, {run}: median over algorithms; largest", "; ".join(
        ", ".join(at.column(BOUNDS, column)) for column in ("bounds / engine: median", "largest"))
    yield "sweep points per CPU second, only the bandwidth varies, 64 NPUs", (
        span(at.numbers(POINTS, "points per CPU second")))
    for name, command in zip(("`compare`, 4 algorithms, 14 sizes, torus:64x64", "the same, with 4 chunks",
                              "`compare`, recursive doubling on dragonfly:33x16x8"), COMMANDS, strict=True):
        yield name, f"{at(STAGES, command, 'CPU s')} s of CPU"
    for name, command in (("first number, user CPU, imports included", start.FIRST),
                          ("the same, first command of the README: three algorithms, 13 sizes", start.README)):
        yield name, (
            f"checkout with nothing compiled {first(at, command, start.CHECKOUT)} s, all compiled "
            f"{first(at, command, start.WARM)}; wheel, just installed {first(at, command, start.INSTALLED)}")


PAGES = (
    (ROOT / "README.md", "## Performance\n", of_readme), (ROOT / "docs/performance.md", "## In short\n", of_performance)
)


def pages() -> Iterator[tuple[Path, str]]:
    """The pages as they should be: the first table behind a heading is that of the numbers in the file."""
    at = Found(tables.kept())
    for page, heading, rows in PAGES:
        text = page.read_text(encoding="utf-8")
        before, _, after = text.partition(heading)
        above, head, rest = after.partition("|---|---|\n")
        below = rest[rest.index("\n\n"):]
        lines = "\n".join(f"| {what} | {said} |" for what, said in rows(at))
        yield page, before + heading + above + head + lines + below


def write() -> None:
    """Write them."""
    for page, text in list(pages()):
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
