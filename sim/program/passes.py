"""Single passes over columns of millions of rows, compiled: numpy would write columns of its own for each step."""

from functools import partial

from topologies.compiled import cached, part

_jit = partial(cached, nogil=True, _nrt=False)


@_jit
def mark(there, values, low):  # type: ignore[no-untyped-def]  # jitted
    """Mark what values occur, counted from the lowest."""
    for at in range(values.size):
        there[values[at] - low] = True


@_jit
def look_up(number, values, low, found):  # type: ignore[no-untyped-def]  # jitted
    """The number of each value; numbers are in the order of values, from the lowest on."""
    for at in range(values.size):
        found[at] = number[values[at] - low]


@_jit
def tally(count, rows):  # type: ignore[no-untyped-def]  # jitted
    """Count how often each row occurs."""
    for at in range(rows.size):
        count[rows[at]] += 1


@partial(part, nogil=True, _nrt=False)
def _row_of(slot_first, src, slot, source):  # type: ignore[no-untyped-def]  # jitted
    """Row of a transfer, -1 where there is none: they are sorted by slot and source."""
    if slot < 0 or slot >= slot_first.size - 1:
        return -1
    low, end = slot_first[slot], slot_first[slot + 1]
    high = end
    if low < high and source - src[low] < high - low:  # where all are there, this far from the first
        guess = low + max(source - src[low], 0)
        if src[guess] == source:
            return guess
    while low < high:
        middle = (low + high) // 2
        if src[middle] < source:
            low = middle + 1
        else:
            high = middle
    return low if low < end and src[low] == source else -1


@_jit
def children(slot_first, src, parent_ptr, parent_slot, parent_src, ptr, child):  # type: ignore[no-untyped-def]  # jitted
    """Turn round which earlier rows each row waits for, named as in `rows_of`; returns whether all are earlier ones.

    `ptr` (rows + 1,): zeros; filled: offset of the children of each row.
    `child`: filled.
    """
    for row in range(ptr.size - 1):
        for at in range(parent_ptr[row], parent_ptr[row + 1]):
            parent = _row_of(slot_first, src, parent_slot[at], parent_src[at])
            if parent < 0 or parent >= row:
                return False
            ptr[parent + 1] += 1
    for row in range(1, ptr.size):
        ptr[row] += ptr[row - 1]
    for row in range(ptr.size - 1):
        for at in range(parent_ptr[row], parent_ptr[row + 1]):
            parent = _row_of(slot_first, src, parent_slot[at], parent_src[at])
            child[ptr[parent]] = row
            ptr[parent] += 1
    for row in range(ptr.size - 1, 0, -1):  # each is where the next begins by now
        ptr[row] = ptr[row - 1]
    ptr[0] = 0
    return True


@_jit
def children_of_slots(child, parent, source, sources, fan, place, ptr, kids):  # type: ignore[no-untyped-def]  # jitted
    """Turn round which slots each slot waits for, rank by rank; row `place * p + rank` is of the slot at a place.

    `child`, `parent`, `source`: places, and row of `sources`: rank that each rank waits for, each for another.
    `fan`, `place`: how many waits are for each slot, and which of these each is.
    `ptr` (rows + 1,): filled: offset of the children of each row.
    `kids`: filled.
    """
    p, begin = sources.shape[1], 0
    for slot in range(fan.size):
        for rank in range(p):
            ptr[slot * p + rank] = begin
            begin += fan[slot]
    ptr[fan.size * p] = begin
    for at in range(child.size):
        first, step, sent = ptr[parent[at] * p] + place[at], fan[parent[at]], sources[source[at]]
        for rank in range(p):
            to, row = first + sent[rank] * step, child[at] * p + rank
            for _ in range(place[at]):  # children of one slot are in order
                if not row < kids[to - 1] < (child[at] + 1) * p:
                    break
                kids[to] = kids[to - 1]
                to -= 1
            kids[to] = row


@_jit
def without_joins(parent, child, lag, first, n_tasks, ptr, into, stands, kept):  # type: ignore[no-untyped-def]  # jitted
    """Leave out joins that wait for one task at most.

    `first`: number of the first join; a lag below 0 other than -1 is not that of a whole task.
    `ptr` (joins + 2,): zeros; `into`: of as many as there are edges; both scratch.
    `stands` (joins,): the first task behind each; filled: the task that stands for it, -1 for none; those that are left
        follow `n_tasks`.
    `kept` (3, edges): filled: parents, children and lags of the edges that are left.
    Returns how many edges those are, and whether all but windows lead to what is later.
    """
    forward = True
    for at in range(child.size):
        before = 2 * stands[parent[at] - first] - 1 if parent[at] >= first else 2 * parent[at]
        after = 2 * stands[child[at] - first] - 1 if child[at] >= first else 2 * child[at]
        if lag[at] <= 0 and (before > after or (before == after and parent[at] >= child[at])):
            forward = False
        if child[at] >= first:
            ptr[child[at] - first + 2] += 1
    for row in range(2, ptr.size):
        ptr[row] += ptr[row - 1]
    for at in range(child.size):
        if child[at] >= first:
            into[ptr[child[at] - first + 1]] = at
            ptr[child[at] - first + 1] += 1
    left = 0
    for join in range(stands.size):
        only, several = -1, False
        for place in range(ptr[join], ptr[join + 1]):
            at = into[place]
            task = parent[at]
            if task >= first:
                several = several or task - first >= join  # not known yet
                task = stands[task - first]
            if task >= 0:
                several = several or lag[at] != -1 or (only >= 0 and only != task)
                only = task
        if several:
            only = n_tasks + left
            left += 1
        stands[join] = only
    edges = 0
    for at in range(child.size):
        task = stands[parent[at] - first] if parent[at] >= first else parent[at]
        other = stands[child[at] - first] if child[at] >= first else child[at]
        if task >= 0 and (child[at] < first or (other >= n_tasks and other != task)):
            kept[0, edges], kept[1, edges], kept[2, edges] = task, other, lag[at]
            edges += 1
    return edges, forward


@_jit
def farthest_child(ptr, child):  # type: ignore[no-untyped-def]  # jitted
    """How far behind its parent a child comes at most; -1 where one does not come behind it, 0 without children."""
    most = 0
    for row in range(ptr.size - 1):
        for at in range(ptr[row], ptr[row + 1]):
            if child[at] <= row:
                return -1
            most = max(most, child[at] - row)
    return most


@_jit
def fullest_of_runs(ptr, program, rate, work, load, in_run, longest, fullest):  # type: ignore[no-untyped-def]  # jitted
    """The longest latency of a route, and the time of the fullest server, in each run of tasks.

    `ptr` (runs + 1,): first task of each.
    `rate`: of each server; 0 of those that are left out.
    `load`, `in_run`: of each server, scratch, and the run that it is of, -1 on entry.
    `longest`, `fullest`: filled; zeros on entry.
    """
    route_ptr, route_hop = program.route_ptr, program.route_hop
    hop_server, hop_latency_ps = program.hop_server, program.hop_latency_ps
    for run in range(ptr.size - 1):
        most, latest, n = 0.0, 0, ptr[run + 1] - ptr[run]
        before = ptr[max(run - 1, 0)]
        same = 0  # tasks from the first on that are as those of the run before
        if run > 0 and ptr[run] - before == n:
            for task in range(before, ptr[run]):
                other = task + n
                if program.task_route[task] != program.task_route[other] or work[task] != work[other]:
                    break
                same += 1
        if same == n and run > 0:
            longest[run], fullest[run] = longest[run - 1], fullest[run - 1]
            continue
        for task in range(ptr[run], ptr[run + 1]):
            route, sent, lasts = program.task_route[task], work[task] * 1e12, 0
            for at in range(route_ptr[route], route_ptr[route + 1]):
                server = hop_server[route_hop[at]]
                lasts += hop_latency_ps[route_hop[at]]
                if rate[server] > 0:
                    if in_run[server] != run:
                        in_run[server], load[server] = run, 0.0
                    load[server] += sent / rate[server]
                    most = max(most, load[server])
            latest = max(latest, lasts)
        longest[run], fullest[run] = latest, most


@_jit
def rows_of(slot_first, src, wanted_slot, wanted_src, found):  # type: ignore[no-untyped-def]  # jitted
    """Rows of transfers; returns whether all are there.

    `slot_first` (slots + 1,): first row of each slot.
    """
    for at in range(wanted_slot.size):
        found[at] = _row_of(slot_first, src, wanted_slot[at], wanted_src[at])
        if found[at] < 0:
            return False
    return True
