"""How often a machine's agent may begin a new spool because it is told to."""

from datetime import timedelta

# Two agents that use one identity would otherwise make each other begin anew without end.
SETTLES = timedelta(seconds=60)
MOST_A_DAY = 24
# So many within a day are odd, and shown.
MANY_A_DAY = 5


def may_begin_anew(*, begun: int, since: timedelta) -> bool:
    """`begun` counts the machine's spools of the last day, `since` the newest of them began."""
    return since >= SETTLES and begun < MOST_A_DAY
