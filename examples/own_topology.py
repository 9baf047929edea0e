"""A topology of one's own, from a list of links: two boxes of four NPUs joined by one thin cable each way."""

from collectives import direct
from sim import simulate
from topologies import from_links

inside = [
    (a, b, "300GB/s", "500ns")
    for box in (range(4), range(4, 8))
    for a in box
    for b in box
    if a != b
]
between = [(0, 4, "50GB/s", "2us"), (4, 0, "50GB/s", "2us")]
fabric = from_links([*inside, *between], n_npus=8)

result = simulate(direct.all_gather(fabric, size="64MiB"))
print(result)
busiest = result.link_busy_ps.argmax()
print("busiest link:", fabric.link_name(busiest), f"{result.link_utilisation[busiest]:.0%} of the time")
