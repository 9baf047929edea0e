# %% [markdown]
# # Notebook: judge a cluster
# nccl-tests printed a table. Is that good? The table here is synthetic, so that the right answer
# is known: eight GPUs around a switch of 200 Gb/s ports run a ring, their links reach 85 % of
# that, a transfer costs 2 us more than the wire, and the clock has 2 % of noise.

# %%
import json
from pathlib import Path

import numpy as np

from collectives import build
from sim import FabricRun, FaultPlan, SlowLink, Spec, judge, read_measurements, simulate
from topologies import switch

rng = np.random.default_rng(1)
sizes = [1024 * 4**power for power in range(9)]


def measured(path, faults=None):
    """Write the times of a ring on the cluster as nccl-tests would."""
    cluster = switch(8, bandwidth="170Gb/s")
    rows = []
    for size in sizes:
        schedule = build("ring", "all-reduce", cluster, size)
        run = simulate(schedule, endpoint_latency="2us", faults=faults)
        time_us = run.time_s * 1e6 * np.exp(rng.normal(0, 0.02))
        rows.append({"size": size, "out_of_place": {"time": time_us}})
    command = ["./build/all_reduce_perf"]
    document = {"version": 3, "args": command, "devices": [{}] * 8, "results": rows}
    Path(path).write_text(json.dumps(document))


measured("cluster.json")

# %% [markdown]
# ## Which algorithm, latency and bandwidth explain it?
# The judge knows the fabric as it was bought: eight ports of 200 Gb/s. It simulates each
# candidate at every size and fits two numbers, the latency of a transfer and the share of the
# link rate.

# %%
from sim.measured.fabric_run import curves

fabric = switch(8, bandwidth="200Gb/s")
spec = Spec.from_dict({"collective": {"name": "all-reduce"}})
names = ["ring", "direct", "double-binary-tree"]
candidates, _ = curves(spec, fabric, names, sizes)


def run_of(path):
    """The table of a file, and what may have run."""
    table = read_measurements(path, collective="all-reduce", n_ranks=8)
    points = [(one.size_bytes, one.time_s) for one in table.points]
    return FabricRun(path, fabric, "all-reduce", candidates, points)


healthy = run_of("cluster.json")
fit = next(one for one in healthy.fits if one.algorithm == "ring")
share, latency = fit.shares[0], fit.latency_s
print(f"{judge([healthy]).verdict}, most likely {healthy.fits[0].algorithm}")
print(f"latency    {latency.value * 1e6:.2f} us [{latency.low * 1e6:.2f}, {latency.high * 1e6:.2f}]")
print(f"bandwidth  {share.value:.1%} [{share.low:.1%}, {share.high:.1%}] of 200 Gb/s")
assert healthy.fits[0].algorithm == "ring"
assert latency.low < 2e-6 < latency.high
assert share.low < 0.85 < share.high

# %% [markdown]
# Both true values are inside the intervals. The points, the bound that no algorithm can beat, and
# the time on links at their full rate over the measured one (`ratio`):

# %%
columns = ["size_bytes", "measured_s", "simulated_s", "bound_s", "busbw_GBps", "ratio", "limit"]
judge([healthy]).to_frame()[columns].style.format({
    "measured_s": "{:.3e}", "simulated_s": "{:.3e}", "bound_s": "{:.3e}", "busbw_GBps": "{:.2f}", "ratio": "{:.0%}",
}).hide(axis="index")

# %% [markdown]
# ## And if a cable is bad?
# The same cluster, with one port at half its rate:

# %%
measured("sick.json", FaultPlan(faults=(SlowLink(link="npu3--switch0", share=0.5),)))
sick = run_of("sick.json")
print(judge([sick]).verdict)
for fit in sick.fits:
    print(f"{fit.algorithm:20}{fit.shares[0].value:.0%} of 200 Gb/s, within {fit.residual:.1%}")
ring = next(one for one in sick.fits if one.algorithm == "ring")
assert 0.4 < ring.shares[0].value < 0.45

# %% [markdown]
# A ring is as fast as its slowest link, so one port of eight halves the whole, from 85 % of the
# rate to 43 %. The judge fits one rate for all links, and finds such a low one unlikely, so it
# may prefer another algorithm that needs less of a fall. If the log says that a ring ran, the row of
# `ring` is the one to read. Where the bad port is, no curve of one algorithm tells; simulating
# suspects shows what each would look like, here with another algorithm:

# %%
import matplotlib.pyplot as plt

suspects = {
    "healthy": None,
    "one port at half rate": FaultPlan(faults=(SlowLink(link="npu3--switch0", share=0.5),)),
    "all ports at half rate": FaultPlan(
        faults=tuple(SlowLink(link=f"npu{npu}--switch0", share=0.5) for npu in range(8))),
}
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for (name, faults), style in zip(suspects.items(), ("o-", "s--", "^:"), strict=True):
    schedules = [build("direct", "all-reduce", fabric, size) for size in sizes]
    runs = [simulate(one, faults=faults, endpoint_latency="2us") for one in schedules]
    axes.semilogx(sizes, [run.algbw / 1e9 for run in runs], style, label=name)
axes.set(title="direct exchange on eight GPUs", xlabel="size (bytes)", ylabel="algorithm bandwidth (GB/s)")
axes.legend()
plt.show()

# %% [markdown]
# On the command line, and with what NCCL should reach on a machine that weft knows:
#
#     weft judge cluster.json --topology switch:8 --link-bandwidth 200Gb/s --algorithms ring,direct,double-binary-tree
#     weft judge nccl.txt --machine dgx-h100:4
