# %% [markdown]
# # Load over time
# How busy the links are while an all-reduce runs: the numbers behind the slider of `weft report`.

# %%
from collectives import build
from sim import simulate
from sim.engine.run import run
from sim.timeline.timeline import link_load
from topologies import torus

result = simulate(build("swing", "all-reduce", torus((8, 8)), "1MiB", "bandwidth"))
load = link_load(result.lowered, run(result.lowered.program, log=True), frames=24)

# %% [markdown]
# A row for each moment; the mean over all links. Swing's later steps reach further, carry less, and wait longer.

# %%
for frame, busy in enumerate(load.mean(axis=1)):
    print(f"{(frame + 1) * result.time_s / 24 * 1e6:6.2f} us  {'#' * round(40 * busy)} {busy:.0%}")
