# %% [markdown]
# # A topology of one's own
# From a list of links: two boxes of four NPUs, fully connected inside, joined by one thin cable each way.

# %%
from collectives import build, direct
from sim import simulate
from sim.analytic.cut_bound import cut_bound
from topologies import from_links

inside = [(a, b, "300GB/s", "500ns") for box in (range(4), range(4, 8)) for a in box for b in box if a != b]
between = [(0, 4, "50GB/s", "2us"), (4, 0, "50GB/s", "2us")]
fabric = from_links([*inside, *between], n_npus=8)

# %% [markdown]
# The bound is exact, and names the cut.

# %%
bound = cut_bound(fabric, "all-gather")
print(f"no all-gather is above {float(1 / bound.s_per_byte) / 1e9:.0f} GB/s: {bound.reason}")

# %% [markdown]
# Direct crosses the cable four times with every shard, pipelined trees once.

# %%
result = simulate(direct.all_gather(fabric, size="64MiB"))
print(result)
busiest = int(result.link_busy_ps.argmax())
print("busiest link:", fabric.link_name(busiest), f"{result.link_utilization[busiest]:.0%} of the time")
print(simulate(build("pipelined", "all-gather", fabric, "64MiB"), chunks=64, discipline="lowest-chunk-first"))
