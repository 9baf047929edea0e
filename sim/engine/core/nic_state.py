"""Where the fields of NICs in the fifo loop lie; see sim/engine/nics/posts.py."""

from __future__ import annotations

# Words of a NIC: heaps; the first flow that is paused; idle engines; the port posted last; when the NPU may post again;
# its first engine and how many of them are PUSHING; when it is looked at again, FAR if that is not set; the last push;
# work that the queue has room for, whether it can ever be short of it, first and last of its services that have not
# ended; first chunk of those pushed together, which are to be committed; engines that had to wait for room; when it was
# touched; its server.
(
    READY, ASIDE, LINE, PAUSED, IDLE, LAST_PORT, POST_PS, ENGINES, BUSY, LOOK_PS, LAST_PS, ROOM, WATCHED, OLDEST,
    NEWEST, TOGETHER, WAITED, STAMP, SERVER, NIC_WORDS,
) = range(20)

# Words of a flow: the transfer that has an engine, the heap of those posted after it, the next flow that is paused.
HOLDER, LATER, NEXT_FLOW, FLOW_WORDS = range(4)

# Words of a task: since when it is where it is, or with an engine, when all that was released is pushed; the key of its
# chunk; the next of its siblings, or of the chunks pushed together; its first child, or with an engine, whether it is
# PUSHING and whether it has waited for room.
SINCE, WANTED, NEXT, CHILD, WISH_WORDS = range(5)
IS_PUSHING, HAS_WAITED = 1, 2

# Words of an engine's next chunk: from when, its key, its place.
FROM_PS, NEXT_KEY, NEXT_PLACE, ENGINE_WORDS = range(4)

# Words of a service that has not ended: its end, its work, the one behind it.
END_PS, WORK, BEHIND, BACKLOG_WORDS = range(4)
