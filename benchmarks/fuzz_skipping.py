"""Random programs for any time, with what repeats skipped and without: `python -m benchmarks.fuzz_skipping`.

Every array, counter, log and critical path must be the same; small programs run in the other engines too. A program in
which something differs is named by its seed, and the run goes on.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from random import Random

from sim.program import Program
from tests.eager_runs import check_everything, on_programs_of_any_size
from tests.repeating_programs import repeating_program

SIZES = (1_500, 6_000, 12_000, 100_000, 1_000_000)
"""Services of a program, about, at most."""
ALLOWED = (10**12, 10**12, 10**12, 20_000, 2_000)
"""What trying may cost."""


def drawn(seed: int) -> tuple[Program, Random]:
    """The program of a seed, and what else is to be drawn for it."""
    rng = Random(seed)
    return repeating_program(rng, rng.choice(SIZES)), rng


def tried(seed: int) -> tuple[int, int]:
    """Services of the program of a seed, and those that were skipped; raises where something differs."""
    program, rng = drawn(seed)
    with on_programs_of_any_size(first_wait=rng.choice((1, 8, 8, 64))):
        return program.chunk_hops(), check_everything(program, rng.random(), rng.choice(ALLOWED))


def main() -> None:
    """Try programs until the time is up; exit code 1 where one differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz_skipping", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first program; the others follow (default: 1)")
    parser.add_argument("--seconds", type=float, default=60, help="of CPU (default: 60)")
    given = parser.parse_args()
    counted: Counter[str] = Counter()
    differs = []
    seed, end = given.seed, time.process_time() + given.seconds
    while time.process_time() < end:
        try:
            services, skipped = tried(seed)
        except Exception as wrong:  # whatever goes wrong is what is looked for
            differs.append(seed)
            print(f"seed {seed}: {type(wrong).__name__}: {str(wrong).strip().splitlines()[0][:200]}", flush=True)
        else:
            counted += Counter(programs=1, skipping=skipped > 0, services=services, skipped=skipped)
        seed += 1
    print(
        f"seeds {given.seed} to {seed - 1}: {counted['programs']:,} programs alike, {counted['skipping']:,} with "
        f"stretches, {counted['skipped']:,} of {counted['services']:,} services skipped; {len(differs)} differ"
    )
    raise SystemExit(bool(differs))


if __name__ == "__main__":
    main()
