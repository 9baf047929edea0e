"""The account of the critical path of everything that is pending, carried forward."""

from __future__ import annotations

from sim.engine._jit import helper, u64
from sim.engine._state import AT, TASK


@helper
def copy_account(state, source, target):
    columns = state.account_columns[0]
    for column in range(columns):
        state.account[u64(target * columns + column)] = state.account[u64(source * columns + column)]


@helper
def carry(program, state, token, server, start, service, ready, first_hop):
    """Account a service: the token comes from its own arrival or, where it waited, from the service before it.

    A row holds the picoseconds of the critical path up to some moment: C columns of serialisation by class of server,
    C of queueing, and one of each latency label. Two more are used by servers, whose row is that of the last start:
    the service that began then and its task.
    """
    n_servers, n_tasks, columns = program.server_rate.size, program.task_cut.size, state.account_columns[0]
    account, n_classes = state.account, state.account_columns[1]
    task = state.event[u64(8 * (n_servers + token) + TASK)]
    mine = (1 + n_servers + n_tasks + program.pool_capacity.size + token) * columns
    its = (1 + server) * columns
    own_class = state.account_class[u64(server)]
    if start > state.event_ps[u64(4 * (n_servers + token))]:
        for column in range(columns - 2):
            account[u64(mine + column)] = account[u64(its + column)]
        queued = own_class if account[u64(its + columns - 1)] == task else n_classes + own_class
        account[u64(mine + queued)] += account[u64(its + columns - 2)]
    for column in range(columns - 2):
        account[u64(its + column)] = account[u64(mine + column)]
    account[u64(its + columns - 2)] = service
    account[u64(its + columns - 1)] = task
    if first_hop:
        gate = (1 + n_servers + task) * columns
        for column in range(columns - 2):
            account[u64(gate + column)] = account[u64(mine + column)]
        account[u64(gate + own_class)] += service
    hop = program.route_hop[u64(state.event[u64(8 * (n_servers + token) + AT)])]
    account[u64(mine + own_class)] += ready - start - program.hop_latency_ps[u64(hop)]
    labels = columns - 2 - 2 * n_classes
    for label in range(labels):
        account[u64(mine + 2 * n_classes + label)] += state.account_latency_ps[u64(hop * labels + label)]
