"""`python -m sim` is `weft`: from the first moment on, Ctrl-C, SIGTERM and a missing package end it in one line."""

import atexit
import gc
import os
import signal
import sys
import warnings
from types import FrameType


def main() -> int:
    """Run `weft`; returns the exit code."""
    if not sys.warnoptions:  # what a user can act on is said in a line of its own; those of libraries name their files
        warnings.simplefilter("ignore")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts its threads before anything asks for them
    atexit.register(gc.freeze)  # a process that ends looks for nothing to free: a tenth of a small command
    gc.disable()  # until what the command needs is loaded, none of which is garbage: `sim.cli` goes on
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        from sim.cli import main as run  # takes a tenth of a second, and must not be interrupted with a traceback

        return _ended(run())
    except KeyboardInterrupt as early:
        print("weft: interrupted, nothing was written", file=sys.stderr)
        return 128 + int((early.args or (signal.SIGINT,))[0])
    except ModuleNotFoundError as missing:
        from topologies.checks import not_installed  # what is imported above may be interrupted

        package = (missing.name or "").partition(".")[0]
        if package in ("", "sim", "workloads", "collectives", "topologies"):
            raise
        print(f"weft: {not_installed(package)}", file=sys.stderr)
        return 2
    finally:
        gc.enable()
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:
    """SIGTERM until a command hears it."""
    raise KeyboardInterrupt(number)


def _ended(code: int) -> int:
    """The exit code; the process ends here where a solver was left running, which would not survive a longer end.

    And where it was interrupted: to free what it had built can take seconds. Not where it had worker processes, whose
    semaphores are freed at a proper end alone.
    """
    from topologies.process import is_left_running  # what is imported above may be interrupted

    workers = sys.modules.get("sim.study.processes")
    had_workers = workers is not None and workers.begun
    if is_left_running() or (code in (130, 143) and not had_workers):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
