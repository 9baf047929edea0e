"""Mutants of the core: whatever operator, number or condition is changed, a test must fail.

Mutants are made and run by mutmut, in a copy of the packages below out/mutants. To its own operators two are added that
delete: a condition (of an `if` or a comprehension, or one side of `and`, `or`, `&`, `|`) and a call for its effect.
Left out are those of mutmut's that mostly raise at once and say nothing of the tests: changed texts, None in place of a
value or an argument, a dropped argument.

A mutant runs the tests that reach its function, fastest first, in a process forked from one that has imported them and
run none, so no cache holds what the unchanged code found. Those that survive are in `JUDGED`, each with the reason.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import pytest

ROOT = Path(__file__).parents[1]
WORK = ROOT / "out" / "mutants"
JUDGED = Path(__file__).with_name("surviving_mutants.toml")
PAGE = ROOT / "docs" / "reliability.md"
COPIED = ("sim", "collectives", "topologies", "workloads", "tests", "benchmarks", "docs", "examples")
LEAST_KILLED = 0.9
MOST_BYTES = 2 << 30
SECONDS = 10
"""Between two lines of progress, where they do not go to a terminal."""
KILLED, RAN_OUT, TIMED_OUT = 1, 36, (-24, 24, 36, 152)
"""Exit codes of mutmut's children; any other is that of a survivor."""

HEAD = """\
| subject | mutants | run | killed | ran out of time | equivalent | other survivors | killed of what is not equivalent |
|---|--:|--:|--:|--:|--:|--:|--:|"""


class Subject(NamedTuple):
    """Files that are mutated, and the tests that must notice."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


def engine(*names: str) -> tuple[str, ...]:
    """Files of the engine's room."""
    return tuple(f"sim/engine/{name}.py" for name in names)


LIGHT = "--sample=16", "--hypothesis-profile=mutants"
SUBJECTS = {
    "quotient": Subject(("sim/lower/quotient.py",), ("tests/sim/lower/test_symmetry_conditions.py",)),
    "proof": Subject(
        tuple(f"collectives/core/{name}.py" for name in ("proof", "follow", "_follow")),
        tuple(f"tests/collectives/core/test_{name}.py" for name in ("proof_conditions", "follow")),
    ),
    "matches": Subject(
        ("collectives/core/_matches.py",),
        ("tests/collectives/test_synthesis.py",),
    ),
    "certificates": Subject(
        tuple(f"sim/certify/{name}.py" for name in ("conditions", "faulty", "fluid", "schedule")),
        ("tests/sim/certify", "-k=not 99999", *LIGHT),
    ),
    "in turn": Subject(("sim/certify/in_turn.py",), ("tests/sim/certify/test_in_turn.py", *LIGHT)),
    "why": Subject(
        ("sim/why/*.py",),
        ("tests/sim/why", "-k=not accident and not compare and not a_range and not differently and not keeps", *LIGHT),
    ),
    "routing": Subject(
        ("topologies/core/routing.py", "topologies/core/paths.py"), ("tests/topologies/core/test_routing.py", *LIGHT)
    ),
    "kernel": Subject(
        engine("loop", "core/*", "policies/*", "nics/*"),
        (
            *(
                f"tests/sim/engine/{name}.py"
                for name in (
                    "core/test_calendar", "policies/test_faults", "nics/test_nic", "policies/test_channels",
                    "policies/test_rooms", "policies/test_turns", "test_engine",
                )
            ),
            "-k=not bytes_a", *LIGHT,
        ),
    ),
    "calendar": Subject(("sim/engine/core/calendar.py",), ("tests/sim/engine/core/test_calendar.py", *LIGHT)),
    "services": Subject(
        ("sim/program/service_table.py", "sim/engine/core/tasks.py"),
        ("tests/sim/program/test_service_table.py", "-k=not thousand and not faults_of", *LIGHT),
    ),
    "order": Subject(("sim/certify/order.py",), ("tests/sim/certify/test_order.py", "-k=not registry", *LIGHT)),
    "times": Subject(
        ("sim/certify/times.py", "sim/certify/healthy.py"),
        (
            *(f"tests/sim/certify/test_{name}.py" for name in ("certificate_conditions", "certificates", "order")),
            "-k=not 99999 and not registry", *LIGHT,
        ),
    ),
    "lowering": Subject(
        tuple(f"sim/lower/{name}.py" for name in ("job", "job_symmetry", "shape", "templates")),
        (
            *(f"tests/sim/lower/test_{name}.py" for name in ("lowering_conditions", "lower_job", "progress")),
            "-k=not straggler and not share_a and not as_long and not switches_that and not other_alg", *LIGHT,
        ),
    ),
    "tuner": Subject(("sim/library/tuner.py",), ("tests/sim/library/test_tuner.py", *LIGHT)),
    "units": Subject(("topologies/units.py",), ("tests/topologies/test_units.py", *LIGHT)),
    "nics": Subject(
        (*engine("nics/*"), "sim/lower/nics.py", "sim/certify/times.py"),
        ("tests/sim/engine/nics", "tests/sim/certify/test_nic_certificates.py", "tests/sim/lower/test_nics.py",
         "-k=not pauses and not loops_agree", *LIGHT),
    ),
    "training": Subject(
        ("workloads/training.py", *(f"workloads/passes/{name}.py" for name in ("orders", "memory"))),
        ("tests/workloads/test_training.py", "tests/workloads/passes",
         "-k=not wait_free and not dear_gathers and not engine_to", *LIGHT),
    ),
    "judge": Subject(
        ("sim/measured/judge.py", "sim/measured/diagnosis.py"),
        ("tests/sim/measured/test_judge.py", "tests/sim/measured/test_evidence.py", *LIGHT),
    ),
    "retime": Subject(("sim/program/retime.py",), ("tests/sim/program/test_retime.py", *LIGHT)),
}
"""By the name that the command takes; tests are fast ones, arguments of pytest."""


def main() -> None:
    """Run the mutants of some subjects (default: all), and write the table in docs/reliability.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=main.__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(SUBJECTS)}")
    parser.add_argument(
        "--survivors", action="store_true", help="run only what was not killed, with the tests as they are now"
    )
    parser.add_argument("--rest", action="store_true", help="run only what was not run yet, or has changed since")
    parser.add_argument(
        "--most", type=int, metavar="N", help="run N of each subject's mutants, chosen by a hash of their names"
    )
    parser.add_argument("--in-copy", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.in_copy is not None:
        run_here(arguments.in_copy, arguments.most)
        return
    if unknown := set(arguments.subjects) - set(SUBJECTS):
        parser.error(f"no such subject: {', '.join(sorted(unknown))}; choose of {', '.join(SUBJECTS)}")
    failed = []
    for name in arguments.subjects or SUBJECTS:
        print(f"== {name}", flush=True)
        names = survivors(name).keys if arguments.survivors else []
        copy(name, afresh=not names and not arguments.rest)
        run(name, names, arguments.most)
        failed += judge(name, survivors(name))
    if failed:
        raise SystemExit("\n".join(failed))


def copy(name: str, afresh: bool) -> None:
    """Copy the packages and their tests, with the configuration of mutmut for one subject."""
    subject, folder = SUBJECTS[name], WORK / name
    if afresh:
        shutil.rmtree(folder, ignore_errors=True)
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".meta":  # those have the results
            path.unlink()
    for part in COPIED:
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    for path in (path for pattern in subject.files for path in folder.glob(pattern)):
        # mutmut skips functions with decorators; without the compiler these do nothing.
        text = re.sub(r"^@_?(?:entry|helper|part|section)\n", "", path.read_text(), flags=re.MULTILINE)
        path.write_text(text)
    shutil.copy(ROOT / "README.md", folder)
    written = {
        "source_paths": ["sim", "collectives", "topologies", "workloads"],
        "only_mutate": list(subject.files),
        "also_copy": ["benchmarks", "docs", "examples", "README.md"],
        "pytest_add_cli_args_test_selection": list(subject.tests),
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov"],
        "process_isolation": "forkserver",
        "timeout_multiplier": 10.0,
        "timeout_constant": 2.0,
        "use_git_change_detection": False,
        "track_dependencies": False,
    }
    lines = ["", "[tool.mutmut]", *(f"{key} = {json.dumps(value)}" for key, value in written.items()), ""]
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + "\n".join(lines))


def run(name: str, only: Sequence[str], most: int | None) -> None:
    """Start this module again in the copy; Ctrl-C reaches mutmut too, which ends its processes."""
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": "", "PYTHONHASHSEED": "0"}
    few = [] if most is None else ["--most", str(most)]
    command = [sys.executable, "-m", "benchmarks.mutants", *few, "--in-copy", *only]
    process = subprocess.Popen(command, cwd=WORK / name, env=environment)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.wait()
        raise SystemExit(130) from None
    if code:
        raise SystemExit(f"{name}: mutmut ended with exit code {code}")


def run_here(only: Sequence[str], most: int | None) -> None:
    """Make and run the mutants of the working directory."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))  # a mutant that asks for more room for ever
    from mutmut import __main__ as mutmut
    from mutmut import stats
    from mutmut.mutation import file_mutation, mutators
    from mutmut.runners.harness import PytestRunner
    from mutmut.state import state
    from mutmut.utils.file_utils import change_cwd
    from mutmut.workers.isolation import ForkServerRunner

    if not sys.stdout.isatty():
        mutmut.print_status = stats.print_status = now_and_then()
    file_mutation.mutation_operators = operators(mutators)
    every, warm_up = mutmut.collect_source_file_mutation_data, PytestRunner.warm_up

    def collected_once(self: PytestRunner) -> None:
        warm_up(self)
        gc.freeze()  # or each mutant's process, whose tests collect garbage, would look at all that was imported

    def fastest_first(self: PytestRunner, *, mutant_name: str | None, tests: Iterable[str]) -> int:
        takes = state().duration_by_test
        first = sorted(tests, key=lambda one: (takes[one], one))
        with change_cwd("mutants"):
            arguments = self._pytest_args_regular_run(first)
            return int(self.execute_pytest(arguments, plugins=[Limit(takes)] if mutant_name else []))

    def some(*, mutant_names: Sequence[str]) -> Any:
        mutants, data = every(mutant_names=mutant_names)
        return sorted(mutants, key=lambda one: crc32(one[1].encode()))[:most], data

    PytestRunner.warm_up, PytestRunner.run_tests = collected_once, fastest_first
    mutmut.collect_source_file_mutation_data = some
    # The run that finds which tests reach a function has just passed, and that mutants are seen, those killed show.
    ForkServerRunner.run_clean_tests = lambda *_, **__: 0
    mutmut.run_forced_fail_test = lambda _: None
    try:
        mutmut._run(list(only), 1)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def now_and_then() -> Callable[..., None]:
    """Print a line of progress in a file or a pipe, where it cannot be printed over the last one."""
    last = [0.0]

    def line(text: str, *, force_output: bool = False) -> None:
        if force_output or time.monotonic() - last[0] > SECONDS:
            last[0] = time.monotonic()
            print(text.strip(), file=sys.__stdout__, flush=True)

    return line


class Limit:
    """Plugin of pytest: ends the process where a test takes half a second more than five times its own time."""

    def __init__(self, takes: dict[str, float]) -> None:
        self.takes = takes

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        signal.signal(signal.SIGVTALRM, lambda *_: os._exit(RAN_OUT))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.5 + 5 * self.takes.get(item.nodeid, 0))
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def operators(mutators: Any) -> list[tuple[type, Any]]:
    """mutmut's operators without those that mostly raise, and two that delete."""
    import libcst as cst

    left_out = {
        mutators.operator_string, mutators.operator_lambda, mutators.operator_assignment, mutators.operator_arg_removal,
    }  # fmt: skip

    def one_line(node: Any) -> Any:
        if "\n" not in cst.Module([]).code_for_node(node):
            return node
        return node.with_changes(lpar=[cst.LeftParen(), *node.lpar], rpar=[*node.rpar, cst.RightParen()])

    def condition(node: Any) -> Iterator[Any]:
        if isinstance(node, cst.If):
            yield node.with_changes(test=cst.Name("False"))
        elif isinstance(node, cst.CompIf):
            yield node.with_changes(test=cst.Name("True"))
        elif isinstance(node, cst.BooleanOperation) or isinstance(node.operator, cst.BitAnd | cst.BitOr):
            yield from map(one_line, (node.left, node.right))

    def effect(node: Any) -> Iterator[Any]:
        if isinstance(node.value, cst.Call):
            yield cst.Pass()

    kept = [one for one in mutators.mutation_operators if one[1] not in left_out]
    deleting = [(kind, condition) for kind in (cst.If, cst.CompIf, cst.BooleanOperation, cst.BinaryOperation)]
    return [*kept, *deleting, (cst.Expr, effect)]


class Mutant(NamedTuple):
    """A change of a line in a function: what a reader needs to judge it, and what identifies it from run to run."""

    file: str
    function: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file} {self.function}\n  - {self.before}\n  + {self.after}"


class Found(NamedTuple):
    """What came of the mutants of one subject: how many there are, were run, ran out of time; those no test noticed."""

    mutants: int
    run: int
    timed_out: int
    survived: list[Mutant]
    keys: list[str]


def survivors(name: str) -> Found:
    """What came of the last run."""
    n, codes, survived, keys = 0, [], [], []
    for path in sorted((WORK / name / "mutants").rglob("*.py.meta")):
        if not path.with_suffix("").exists():
            continue  # stopped while mutants were made
        every = json.loads(path.read_text())["exit_code_by_key"]
        of_key = {key: code for key, code in every.items() if code is not None}
        n += len(every)
        file = path.relative_to(WORK / name / "mutants").as_posix().removesuffix(".meta")
        bodies = functions((WORK / name / "mutants" / file).read_text())
        codes += of_key.values()
        here = [key for key, code in of_key.items() if code not in (KILLED, *TIMED_OUT)]
        survived += [changed(file, key, bodies) for key in here]
        keys += [key for key, code in of_key.items() if code != KILLED]
    return Found(n, len(codes), sum(code in TIMED_OUT for code in codes), survived, keys)


def functions(text: str) -> dict[str, list[str]]:
    """Lines of each function that mutmut wrote, by its name."""
    starts = list(re.finditer(r"^ *def (x\S*__mutmut_\w+)\(", text, re.MULTILINE))
    ends = [*(one.start() for one in starts[1:]), len(text)][: len(starts)]
    return {one[1]: text[one.start() : end].splitlines() for one, end in zip(starts, ends, strict=True)}


def changed(file: str, key: str, bodies: dict[str, list[str]]) -> Mutant:
    name = key.rpartition(".")[2]
    base = name.rpartition("__mutmut_")[0]
    bodies[name][0] = bodies[name][0].replace(name, f"{base}__mutmut_orig")
    pairs = zip(bodies[f"{base}__mutmut_orig"], bodies[name], strict=False)
    before, after = next(pair for pair in pairs if pair[0] != pair[1])
    return Mutant(file, base.removeprefix("x").strip("_ǁ").replace("ǁ", "."), before.strip(), after.strip())


class Known(NamedTuple):
    """Mutants that survive for one reason."""

    reason: str
    equivalent: bool
    mutants: list[Mutant]


def known(name: str) -> list[Known]:
    """The survivors that have been judged."""
    groups = tomllib.loads(JUDGED.read_text()).get(name, [])
    return [
        Known(one["reason"], one.get("equivalent", True), [Mutant(*row) for row in one["mutants"]]) for one in groups
    ]


def judge(name: str, found: Found) -> list[str]:
    """Print what survived, write the page; the faults of a subject."""
    same = {mutant for group in known(name) if group.equivalent for mutant in group.mutants}
    judged = {mutant for group in known(name) for mutant in group.mutants}
    for mutant in sorted(set(found.survived) - judged):
        print(f"survived: {mutant}")
    equivalent = sum(mutant in same for mutant in found.survived)
    killed = found.run - len(found.survived) - found.timed_out
    share = killed / max(found.run - equivalent, 1)
    others = len(found.survived) - equivalent
    row = (name, found.mutants, found.run, killed, found.timed_out, equivalent, others, f"{share:.1%}")
    print(f"{name}: {share:.1%} of {found.run - equivalent} mutants that change something are killed")
    write_page(row)
    gone = judged - set(found.survived) if found.run == found.mutants else set()
    faults = [f"{name}: killed, and listed as a survivor: {mutant}" for mutant in sorted(gone)]
    return faults + ([f"{name}: fewer than {LEAST_KILLED:.0%}"] if share < LEAST_KILLED else [])


def write_page(row: Sequence[object]) -> None:
    """Put a row into the table, and the judged survivors below it."""
    head, start, rest = PAGE.read_text().partition("<!-- table of mutants -->\n")
    table, end, tail = rest.partition("<!-- end of mutants -->")
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in table.splitlines() if line.startswith("| ")}
    rows[str(row[0])] = f"| {' | '.join(map(str, row))} |"
    lines = [HEAD, *(rows[name] for name in SUBJECTS if name in rows), ""]
    for name in SUBJECTS:
        for group in known(name):
            lines.append(f"- {name}, {'equivalent' if group.equivalent else 'not equivalent'}: {group.reason}")
            lines += [f"  - `{one.function}`: `{one.before}` becomes `{one.after}`" for one in group.mutants]
    PAGE.write_text(head + start + "\n".join(lines) + "\n" + end + tail)


if __name__ == "__main__":
    main()
