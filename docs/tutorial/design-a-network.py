# %% [markdown]
# # Notebook: design a network
# 64 NPUs, 300 GB/s of network bandwidth each. Which fabric, and how should the bandwidth be
# split between its dimensions? The workload is an all-reduce of 64 MiB.

# %%
from collectives import build
from sim import Feasible, budget, collective_objective, cut_bound, optimize
from sim import simulate, to_frame
from topologies import bytes_per_s, egress_Bps, from_spec

SIZE = "64MiB"
EACH_GBPS = 300

# %% [markdown]
# ## The same bandwidth in different shapes
# Every fabric gets 300 GB/s per NPU, spread evenly over the links of an NPU; only the shape
# differs. An algorithm that cannot run on a fabric is left out by name, not silently.

# %%
def with_egress(spec: str):
    """The fabric whose NPUs have 300 GB/s each."""
    unit = from_spec(spec, bandwidth="1GB/s", latency="100ns", hop_latency="300ns")
    links = egress_Bps(unit).max() / 1e9
    rate = bytes_per_s(EACH_GBPS * 1e9 / links)
    return from_spec(spec, bandwidth=rate, latency="100ns", hop_latency="300ns")


rows = []
for spec, algorithms in {
    "torus:8x8": ("swing", "bucket", "ring"),
    "hyperx:8x8": ("bucket", "direct"),
    "switch:64": ("direct", "ring"),
    "hypercube:6": ("recursive-doubling", "direct"),
}.items():
    fabric = with_egress(spec)
    bound_s = float(cut_bound(fabric, "all-reduce").s_per_byte) * 2**26
    for name in algorithms:
        result = simulate(build(name, "all-reduce", fabric, SIZE), chunks=8)
        share = f"{bound_s / result.time_s:.0%}"
        rows.append({"fabric": spec, "links": fabric.n_links, "algorithm": name,
                     "time_us": round(result.time_s * 1e6, 1), "of the bound": share})
shapes = to_frame(rows).sort_values("time_us", ignore_index=True)
shapes

# %% [markdown]
# The bound is nearly the same for all of them: what an NPU must send and receive. How close an
# algorithm comes to it is a matter of the shape.

# %% [markdown]
# ## How to split the bandwidth
# A network of three dimensions, as in a cluster with a board, a rack and a switch: a ring of 4
# by 4 fully connected by a switch of 4. How much of its 300 GB/s should an NPU have in each?

# %%
fabric = from_spec("RI(4)_FC(4)_SW(4)")
objective = collective_objective(fabric, "all-reduce", "hierarchical", SIZE)
feasible = Feasible((budget(EACH_GBPS, 3, spent=True),), 3)
found = optimize(objective, feasible, max_evaluations=40)
found.to_frame()

# %%
import numpy as np

equal, best = np.full(3, EACH_GBPS / 3), found.best.bandwidth_GBps
before_us, after_us = objective.time_ns(equal) / 1e3, objective.time_ns(best) / 1e3
print("split (GB/s):", " / ".join(f"{one:.1f}" for one in best))
print(f"equal split {before_us:.0f} us, this one {after_us:.0f} us: {before_us / after_us:.2f} times")
assert abs(best.sum() - EACH_GBPS) < 1e-3
assert after_us < before_us

# %% [markdown]
# What happens between the two, and beyond:

# %%
import matplotlib.pyplot as plt

steps = np.linspace(0, 1.2, 13)
times_us = [objective.time_ns(equal + step * (best - equal)) / 1e3 for step in steps]
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.plot(steps, times_us, "o-")
axes.set(xlabel="from the equal split (0) to the one found (1)", ylabel="time (us)", ylim=(0, None))
plt.show()

# %% [markdown]
# The command line adds what this leaves out: the spread of both times under small
# perturbations, a certified lower bound, prices, and the order of the dimensions.
#
#     weft optimize --network "RI(4)_FC(4)_SW(4)" --collective all-reduce -b 64M --budget 300GB/s
#
# Next: judge measurements of a cluster that exists.
