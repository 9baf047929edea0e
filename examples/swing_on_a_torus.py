# %% [markdown]
# # Swing on an 8x8 torus
# Time, bandwidth, and where the time went.

# %%
from collectives import swing
from sim import simulate
from topologies import torus

fabric = torus((8, 8), bandwidth="400Gb/s", latency="100ns", hop_latency="300ns")
schedule = swing.all_reduce(fabric, size="2MiB")  # proved correct when it is built
result = simulate(schedule, chunk="8KiB", forwarding="cut-through")
print(result)

# %%
print(result.why())
