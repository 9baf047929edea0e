"""A collective that switches circuits between its steps, as a job: its transfers, and the changes of circuits."""

from collections.abc import Sequence

from collectives.reconfiguration_plan import Plan
from collectives.reconfigured import Menu, in_steps
from topologies import WeftError
from topologies.core.epochs import Epochs, circuit_epochs
from topologies.stages import staged
from topologies.units import Quantity
from workloads.job import Job

Port = tuple[str, int]


@staged("pattern")
def plan_job(menu: Menu, plan: Plan, delay: Quantity, *, per_port: bool = False) -> Job:
    """The job of a collective that follows a plan; a step begins when all ranks have ended the one before.

    `plan`: a fabric of the menu for each step.
    `delay`: of every change.
    `per_port`: whether a change darkens only the circuits that change, or the whole fabric.
    WeftError: a plan of other steps, or a schedule that passes chunks on before its steps end.

    Examples
    --------
    >>> from collectives import recursive_doubling
    >>> from collectives.reconfigured import menu
    >>> from topologies import ring
    >>> choice = menu(recursive_doubling.all_reduce(ring(8), "1MiB", form="bandwidth"))
    >>> len(plan_job(choice, choice.every_step("1us"), "1us").operations)
    6
    """
    if len(plan.fabrics) != len(menu.steps):
        raise WeftError(f"a plan of {len(plan.fabrics)} steps for a collective of {len(menu.steps)}")
    chosen, epoch_of = [0], []
    for fabric in plan.fabrics:
        if fabric != chosen[-1]:
            chosen.append(fabric)
        epoch_of.append(len(chosen) - 1)
    epochs = circuit_epochs([menu.fabrics[fabric] for fabric in chosen], keep=per_port)
    job = _collective(menu, epochs, epoch_of)
    change_circuits(job, epochs, [delay] * (len(chosen) - 1), per_port=per_port)
    return job


def planes_job(menu: Menu, delay: Quantity, planes: int = 2) -> Job:
    """The job of a collective whose steps take turns on planes, each of which switches while the others transmit.

    `planes`: each has an equal part of the rate of every circuit.
    """
    if planes < 1:
        raise WeftError(f"{planes} planes: at least 1")
    fabrics = [menu.fabrics[own] for own in menu.own] or [menu.fabrics[0]]
    epochs = circuit_epochs([one.with_links(bandwidth_Bps=one.bandwidth_Bps / planes) for one in fabrics])
    job = _collective(menu, epochs, range(len(menu.own)))
    last: list[int] = []
    for step in range(len(menu.own)):
        down = epochs.links[step - planes].tolist() if step >= planes else ()
        before = [last[step - planes]] if step >= planes else []
        last.append(job.reconfigure(
            f"plane {step % planes} switches for step {step}", delay, down, epochs.links[step].tolist(),
            controller=f"plane {step % planes}", after=before,
        ))
    return job


def _collective(menu: Menu, epochs: Epochs, epoch_of: Sequence[int]) -> Job:
    """A job of the collective alone; each step on the circuits of its epoch."""
    routes = [
        dict(zip(zip(step.src, step.dst, strict=True), epochs.route(epoch, step.src, step.dst), strict=True))
        for step, epoch in zip(menu.steps, epoch_of, strict=True)
    ]
    job = Job(epochs.topology)
    job.collective(menu.schedule.name, in_steps(menu.schedule, epochs.topology, routes))
    return job


def change_circuits(
    job: Job, epochs: Epochs, delays: Sequence[Quantity], *, per_port: bool = False,
    after: Sequence[Sequence[int]] = (), drain: bool = True,
) -> None:
    """Add the changes from each epoch to the next.

    `job`: on the topology of the epochs.
    `epochs`: built with `keep` where changes are per port.
    `delays`: of each change.
    `per_port`: whether a change darkens only the ports that change, or the whole fabric.
    `after`: operations that each change waits for, such as a rotor's clock.
    `drain`: whether changes wait for the circuits in use.
    """
    waits = after or [()] * len(delays)
    ports = _Ports(job, epochs) if per_port else None
    last: list[int] = []
    for epoch, (delay, others) in enumerate(zip(delays, waits, strict=True), 1):
        if ports is not None:
            ports.change(epoch, delay, others, drain)
            continue
        last = [job.reconfigure(
            f"switch to {epochs.fabrics[epoch].name}", delay, epochs.links[epoch - 1].tolist(),
            epochs.links[epoch].tolist(), after=[*last, *others], drain=drain,
        )]


class _Ports:
    """Changes of single circuits: each waits for all that has left its two ports."""

    def __init__(self, job: Job, epochs: Epochs) -> None:
        self.job, self.epochs = job, epochs
        self.left: dict[Port, list[int]] = {}  # circuits that are gone, by port
        self.taken: dict[Port, list[int]] = {}  # changes that came to the port last

    def _ends(self, link: int) -> tuple[Port, Port]:
        topology = self.job.topology
        return ("out", int(topology.src[link])), ("in", int(topology.dst[link]))

    def change(self, epoch: int, delay: Quantity, after: Sequence[int], drain: bool) -> None:
        """Circuits of both fabrics stay up."""
        old, new = (self.epochs.links[at].tolist() for at in (epoch - 1, epoch))
        for link in set(old) - set(new):
            for port in self._ends(link):
                self.left.setdefault(port, []).append(link)
        taken: dict[Port, list[int]] = {}
        for link in sorted(set(new) - set(old)):
            ports = self._ends(link)
            name = self.job.topology.link_name(link)
            change = self.job.reconfigure(
                f"switch to {name}", delay, [one for port in ports for one in self.left.get(port, ())], [link],
                controller=f"{name} of epoch {epoch}", drain=drain,
                after=[*(one for port in ports for one in self.taken.get(port, ())), *after],
            )
            for port in ports:
                taken.setdefault(port, []).append(change)
        # Whoever comes to these ports later waits for these changes, and so for all that they waited for.
        self.taken |= taken
        for port in taken:
            self.left.pop(port, None)
