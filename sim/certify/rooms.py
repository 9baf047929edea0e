"""What buffers hold over time, by the services of a run."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.program.contract import I64, Program


class Rooms(NamedTuple):
    """Of each service."""

    over: npt.NDArray[np.bool_]  # there was no room for it behind its server
    given: npt.NDArray[np.bool_]  # room behind its server is known to be there just then


def rooms(program: Program, line: I64, work: I64, start: I64, gone: I64, by_server: bool = False) -> Rooms:
    """Whether services had room behind their servers.

    `line`: server and channel of each; `gone`: when its chunk was served by the next server, or in, or lost.
    `by_server`: room may be given in any buffer of the server.
    """
    rows, server = np.arange(line.size), line % program.n_servers
    room = server if program.buffer_shared else line
    back = gone + program.server_credit_ps[server]
    # At one time room is given back before it is taken.
    order = np.lexsort((np.repeat((1, 0), rows.size), np.append(start, back), np.append(room, room)))
    held = np.cumsum(np.append(work, -work)[order])
    first = np.searchsorted(np.append(room, room)[order], np.arange(program.server_buffer.size))
    at_start = np.flatnonzero(order < rows.size)
    over, taker = np.zeros(rows.size, np.bool_), order[at_start]
    over[taker] = held[at_start] - np.append(0, held)[first][room[taker]] > program.server_buffer[line[taker]]
    times, number = np.unique(np.append(back, start), return_inverse=True)
    of = server if by_server else room
    keys = np.append(of, of) * times.size + number.reshape(-1)
    given = np.isin(keys[rows.size :], keys[: rows.size]) & program.bounded[server]
    return Rooms(over, given)
