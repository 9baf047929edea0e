"""The timeline of one iteration: the passes of every rank of a pipeline."""

from pathlib import Path

from matplotlib.patches import Patch

from sim.plots.style import CYCLE, WIDE, figure
from workloads.passes.iteration import Iteration

KINDS = {"F": "forward", "BW": "backward", "B": "input gradient", "W": "weight gradient", "pair": "both at once"}


def draw_passes(found: Iteration, path: Path, width: str = WIDE) -> None:
    """A bar for every pass, a row for every rank; the paler ones are of later chunks."""
    colors = dict(zip(KINDS, (line.color for line in CYCLE), strict=False))
    ranks, most = found.pipeline.ranks, max(found.plan.vp, 1)
    with figure(path, width, 0.7 + 0.22 * len(ranks)) as drawn:
        axes = drawn.add_subplot()
        seen = dict[str, None]()
        for rank, mine in enumerate(ranks):
            for one in mine:
                kind = one.slot[0].kind if len(one.slot) == 1 else "pair"
                seen[kind] = None
                axes.broken_barh(
                    [(one.begin / 1e12, (one.end - one.begin) / 1e12)], (rank - 0.4, 0.8), facecolors=colors[kind],
                    alpha=1 - 0.6 * one.slot[0].chunk / most, edgecolor="white", linewidth=0.2,
                )
        axes.set_xlim(0, found.time_s)
        axes.axvspan(found.pipeline.end / 1e12, found.time_s, color="#DDDDDD", zorder=0)
        axes.invert_yaxis()
        axes.set_xlabel("time, s")
        axes.set_ylabel("rank of the pipeline")
        axes.set_yticks(range(len(ranks)))
        axes.legend(handles=[Patch(color=colors[kind], label=KINDS[kind]) for kind in KINDS if kind in seen],
                    loc="upper center", bbox_to_anchor=(0.5, 1.0 + 0.9 / (1 + 0.6 * len(ranks))), ncols=4)
