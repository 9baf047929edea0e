# %% [markdown]
# # An algorithm of one's own
# Ten lines that list who sends which blocks to whom: an all-gather on a ring, both ways at once.

# %%
from itertools import zip_longest

from collectives import from_steps
from collectives import ring as built_in
from sim import simulate
from topologies import ring


def two_way_ring(fabric, size):
    """In step s every rank passes on the block that came s steps ago, to the right and to the left."""
    n = fabric.n_npus
    right = [[(r, (r + 1) % n, [(r - s) % n]) for r in range(n)] for s in range(n // 2)]
    left = [[(r, (r - 1) % n, [(r + s) % n]) for r in range(n)] for s in range((n - 1) // 2)]
    steps = [a + b for a, b in zip_longest(right, left, fillvalue=[])]
    return from_steps(fabric, "all-gather", steps, size, name="two-way ring")


# %% [markdown]
# Building it proves it. Simulated, and beside what comes built in:

# %%
fabric = ring(8)
result = simulate(two_way_ring(fabric, "8MiB"))
print(result)
print(simulate(built_in.all_gather(fabric, "8MiB")))

# %% [markdown]
# Where the time went, to the picosecond:

# %%
print(result.why())
