"""The rules for ties between routes that are equally short.

- `first`: the positive direction, or the lowest link index at every node;
- `split`: two routes with half of the bytes each: the first, and the one that takes the opposite choice at every tie;
- `alternating`: by the parity of the source's coordinate in that dimension (even: positive), or of the
  source's rank where there are no coordinates (odd: the highest link index at every node);
- `ecmp`: a seeded hash of (source, destination, dimension), or of (source, destination, hop).
"""

TIES = ("first", "split", "alternating", "ecmp")
