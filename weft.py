"""The command `weft`: from its first moment on, Ctrl-C and a missing package end it in one line.

Nothing is imported before the guard: to import `sim` alone takes long enough to be interrupted.
"""

import sys

ROOMS = ("sim", "workloads", "collectives", "topologies")


def main() -> int:
    """Run `weft`; returns the exit code."""
    try:
        from sim.cli import main as run  # takes a tenth of a second, and must not be interrupted with a traceback

        return run()
    except KeyboardInterrupt:
        print("weft: interrupted, nothing was written", file=sys.stderr)
        return 130
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package in ("", *ROOMS):
            raise
        print(f"weft: needs {package}, which is not installed: pip install {package}", file=sys.stderr)
        return 2
