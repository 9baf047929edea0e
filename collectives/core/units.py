"""Units of pools: each one that is given back was taken before, whatever the timing."""


class Units:
    """Matches what is given back to a pool with what was taken from it: each give with a take of its own before it.

    By Hall's theorem there is such a matching where, and only where, no gives can be done before as many takes are.
    Transfers are bits of integers, in an order that keeps their dependencies. Give 3 waits for takes 0 and 1, and has
    take 1 until give 4 comes, which waits for take 1 alone: from then on, give 3 has take 0.
    """

    def __init__(self) -> None:
        self._takes = 0
        self._before: dict[int, int] = {}  # of each give, the takes that precede it
        self._take_of: dict[int, int] = {}
        self._give_of: dict[int, int] = {}

    def take(self, one: int) -> None:
        """A transfer takes a unit."""
        self._takes |= 1 << one

    def give(self, one: int, before: int) -> bool:
        """Whether a transfer can give a unit back as well; `before`: itself and all that precede it."""
        self._before[one] = before & self._takes
        wanted_by: dict[int, int] = {}
        looking, seen = [one], 0
        for give in looking:
            new = self._before[give] & ~seen
            seen |= new
            while new:
                take = new.bit_length() - 1
                new ^= 1 << take
                wanted_by[take] = give
                if take not in self._give_of:
                    self._hand_on(take, wanted_by)
                    return True
                looking.append(self._give_of[take])
        return False

    def _hand_on(self, free: int, wanted_by: dict[int, int]) -> None:
        """Along the path to a free take: each give gets the take it wants, and leaves the one it had."""
        take: int | None = free
        while take is not None:
            give = self._give_of[take] = wanted_by[take]
            had = self._take_of.get(give)
            self._take_of[give], take = take, had
