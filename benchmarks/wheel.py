"""Build the wheel with compiled kernels in it, try it, and measure it: `make wheel`.

The kernels are compiled for every interpreter that is found, for processors with nothing but the base instructions of
their kind. An installed weft takes them if interpreter, numba and sources are the same, and compiles otherwise.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from topologies.compiled import ANY_PROCESSOR

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.11", "3.12", "3.13")
PACKAGES = ("topologies", "collectives", "workloads", "sim")

SMOKE = (
    "compare --topology torus:4x4 -b 1K -e 1M -f 32 --algorithms ring,swing,bucket --json out.json",
    "train --topology RI(4)_FC(4) --workload resnet-50 --samples 32 --peak 312 --efficiency 0.5",
    "compare --topology switch:8 --algorithm ring -b 1K -e 1M -f 4 --nccl-json measured.json",
    "judge measured.json --topology switch:8 --algorithms ring,direct",
    "compare --library nccl --machine dgx-h100:2 -b 1M -e 8M",
    "report . --page report.html",
)
"""Commands that an installed weft must run outside a checkout: they read what the packages hold besides code."""


def interpreters() -> dict[str, str | None]:
    """The executable of every version that is supported; None where there is none here."""
    return {version: _interpreter(version) for version in VERSIONS}


def _interpreter(version: str) -> str | None:
    managed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(f"{version}.*/bin/python")
    for name in (shutil.which(f"python{version}"), *map(str, managed)):
        said = subprocess.run([name, "-V"], capture_output=True, text=True, check=False).stdout if name else ""
        if said.startswith(f"Python {version}."):
            return name
    return None


def build(folder: Path, shipped: Path | None = None) -> Path:
    """A wheel of the packages as they stand here, with the compiled code of a folder."""
    with tempfile.TemporaryDirectory() as copy:
        for name in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE"):
            from_, to = ROOT / name, Path(copy, name)
            if from_.is_dir():
                shutil.copytree(from_, to, ignore=shutil.ignore_patterns("__pycache__", "shipped"))
            else:
                shutil.copy(from_, to)
        if shipped is not None:
            shutil.copytree(shipped, Path(copy, "topologies", "shipped"))
        run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), copy])
    return next(folder.glob("weft-*.whl"))


def install(wheel: Path, folder: Path, interpreter: str = sys.executable) -> Path:
    """A new environment with a wheel and what it needs; returns its folder of programs."""
    run([interpreter, "-m", "venv", str(folder)])
    run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", str(wheel)])
    return folder / "bin"


def run(words: Sequence[str], **more: str) -> str:
    """What a program prints, with a clean environment; if it fails, what it said is raised."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "PYTHON", "XDG"))}
    return _run(words, keep | more)


def _run(words: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> str:
    done = subprocess.run(words, env=dict(environment), cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def smoke(programs: Path, folder: Path) -> None:
    """Every command of `SMOKE` in an empty folder."""
    for line in SMOKE:
        keep = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder)}
        _run(["weft", *line.split()], keep, folder)


def install_alone(wheel: Path, folder: Path) -> Path:
    """A new environment with a wheel, which takes what it needs from that of this process; returns its programs."""
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    python = str(folder / "bin" / "python")
    run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", str(wheel)])
    site = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin"


def compile_into(shipped: Path, programs: Path, commands: Sequence[str] = ("warm",)) -> None:
    """Compile the kernels of an installed weft that commands need for any processor, into a folder for `build`."""
    name, features = ANY_PROCESSOR
    with tempfile.TemporaryDirectory() as cache:
        flags = {"NUMBA_CACHE_DIR": cache, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
        for command in commands:
            run([str(programs / "weft"), *command.split()], **flags)
        for found in Path(cache).glob("kernel-*"):
            who, _, stamp = found.name.removeprefix("kernel-").rsplit("-", 2)
            shutil.copytree(found, shipped / f"{who}-{stamp}", ignore=shutil.ignore_patterns("*.lock"))


def main() -> None:
    """Build with the code of every interpreter, and try it with each; `--try`: a wheel without code, not kept."""
    compiles = "--try" not in sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        scratch, kept = Path(name), {}
        plain = wheel = build(scratch)
        for version, interpreter in interpreters().items():
            if interpreter is None:
                print(f"NOT RUN: Python {version}, for it is not here")
                continue
            kept[version] = install(plain, scratch / version, interpreter)
            if compiles:
                compile_into(scratch / "shipped", kept[version])
        if compiles:
            shutil.rmtree(ROOT / "dist", ignore_errors=True)
            wheel = build(ROOT / "dist", scratch / "shipped")
            print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB")
        for version, programs in kept.items():
            if compiles:
                again = ["-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel)]
                run([str(programs / "python"), *again])
            (scratch / f"home-{version}").mkdir()
            smoke(programs, scratch / f"home-{version}")
            print(f"Python {version}: {len(SMOKE)} commands run")


if __name__ == "__main__":
    main()
