# %% [markdown]
# # Notebook: compare algorithms
# Which all-reduce is fastest on a torus, at which size, and why? Everything here runs in
# seconds. The file is a plain Python script in cells: Jupyter (with jupytext), VS Code and
# PyCharm open it as a notebook.
#
# A fabric first: 64 NPUs in an 8x8 torus, with the links of the Swing paper.

# %%
from collectives import build
from sim import roof, simulate, to_frame
from topologies import torus

fabric = torus((8, 8), bandwidth="400Gb/s", latency="100ns", hop_latency="300ns")
fabric

# %% [markdown]
# A schedule says which rank sends which blocks to which rank, and in what order. Building it
# checks it: every contribution reaches every rank that needs it, exactly once.

# %%
schedule = build("swing", "all-reduce", fabric, "2MiB", "bandwidth")
schedule

# %% [markdown]
# Simulating it gives a time, to the picosecond, and says where the time went.

# %%
result = simulate(schedule, chunks=16)
print(result.why())

# %% [markdown]
# ## From one run to a table
# A row per run, a data frame of rows. Swing has two forms: `latency` sends the whole array in
# few steps, `bandwidth` sends shrinking parts in twice as many.

# %%
candidates = {
    "swing, latency": ("swing", "latency"),
    "swing, bandwidth": ("swing", "bandwidth"),
    "bucket": ("bucket", None),
    "ring": ("ring", None),
}
sizes = [2**power for power in range(10, 29, 3)]
times = to_frame([
    simulate(build(algorithm, "all-reduce", fabric, size, form), chunks=16).row() | {"candidate": name}
    for name, (algorithm, form) in candidates.items()
    for size in sizes
]).pivot(index="size_bytes", columns="candidate", values="time_s")[list(candidates)] * 1e6
times.round(2)

# %% [markdown]
# The fastest at each size, and how much longer the second takes:

# %%
ordered = times.apply(sorted, axis="columns", result_type="expand")
leads = to_frame([
    {"size_bytes": size, "fastest": times.loc[size].idxmin(),
     "second takes longer by": f"{ordered.loc[size, 1] / ordered.loc[size, 0] - 1:.0%}"}
    for size in sizes
])
leads

# %%
assert leads["fastest"].iloc[0] == "swing, latency"  # few steps win where latency is everything
assert leads["fastest"].iloc[-1] != "swing, latency"  # and lose where bytes are

# %% [markdown]
# ## How good could it be?
# No algorithm is faster than the cut of the fabric allows. In the picture the roof is that
# bound with the latency of the farthest pair.

# %%
import matplotlib.pyplot as plt

top = roof(fabric, "all-reduce")
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for (name, column), style in zip(times.items(), ("o-", "s--", "^-.", "v:"), strict=True):
    axes.loglog(times.index, times.index / column / 1e3, style, label=name)
axes.loglog(sizes, [size / top.time_s(size) / 1e9 for size in sizes], color="0.3", label="bound")
axes.set(title=f"all-reduce on {fabric.name}", xlabel="size (bytes)", ylabel="algorithm bandwidth (GB/s)")
axes.legend()
plt.show()

# %%
share = top.time_s(sizes[-1]) * 1e6 / times.loc[sizes[-1]].min()
print(f"the fastest at {sizes[-1] // 2**20} MiB reaches {share:.0%} of the bound")
assert 0.9 < share <= 1

# %% [markdown]
# ## Does the answer hold?
# A ranking that changes with an assumption is worth knowing. So far software took no time. Here
# every transfer costs its sender 2 us, as launch and protocol do on real machines:

# %%
for software in (0, "2us"):
    for name, (algorithm, form) in candidates.items():
        schedule = build(algorithm, "all-reduce", fabric, "2MiB", form)
        run = simulate(schedule, chunks=16, endpoint_latency=software)
        print(f"{software or 'none':5} {name:17} {run.time_s * 1e6:6.1f} us")

# %% [markdown]
# The same comparison with every algorithm, on the command line:
#
#     weft compare --topology torus:8x8 --collective all-reduce -b 1K -e 256M -f 8
#
# Next: design a network for a collective.
