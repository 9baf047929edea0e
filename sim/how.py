"""How runs are done: what changes no time that they find.

Everything that simulates is told so by these two, which `simulate` has as arguments.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from sim.engine.run import check_size, run
from sim.program import Program
from sim.program.outcome import Outcome
from topologies.checks import Count, checked
from topologies.lazy import later
from topologies.stages import staged
from topologies.text.brief import one_line


@checked
@one_line
@dataclass(frozen=True, kw_only=True)
class How:
    """How runs are done; each as in `simulate`.

    Attributes
    ----------
    check : bool
        Check every certificate of every run.
    max_events : int, optional
        Give up a run after this many services.

    Examples
    --------
    >>> from sim.program import ProgramBuilder
    >>> builder = ProgramBuilder()
    >>> _ = builder.task(1000, [(builder.server(rate=1e9), 500)])
    >>> How(check=True).run(builder.build()).makespan_ps
    1000500
    """

    check: bool = False
    max_events: Count | None = None

    def arguments(self) -> dict[str, Any]:
        """These two, for `simulate`."""
        return asdict(self)

    def run(
        self, program: Program, *, log: bool = False, lower_bound_ps: Callable[[Program], int] | None = None,
        fits: bool = False,
    ) -> Outcome:
        """Run a program to its end; one that is no job.

        `log`: keep every service; so does a run that is checked.
        `lower_bound_ps`: of the time of a program, for the check.
        `fits`: one as large has run.
        WeftError: it does not fit in memory, or is too long to start without a limit.
        Stopped: the limit of services was reached, or Ctrl-C.
        CertificateError: a broken certificate.
        """
        if not fits:
            check_size(program, log or self.check, self.max_events is not None)
        outcome = run(program, log=log or self.check, max_events=self.max_events)
        if self.check:
            _certify(program, outcome, lower_bound_ps)
        return outcome


@staged("check")
def _certify(program: Program, outcome: Outcome, lower_bound_ps: Callable[[Program], int] | None) -> None:
    later("sim.certify.healthy:certify")(program, outcome, 0 if lower_bound_ps is None else lower_bound_ps(program))


AS_USUAL = How()
"""Not checked, and without a limit."""
