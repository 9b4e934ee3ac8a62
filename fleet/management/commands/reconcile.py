"""`drydock-fleet reconcile --once`: run one tick of reconciliation, and print its result and cost."""

import resource
import time

from fleet.domain.db_timeouts import profile_in_use
from fleet.management.helpers import OperationCommand
from fleet.operations import reconcile


class Command(OperationCommand):
    help = (
        "Do whatever is due, once, and print what it was with its seconds. Beat and the gateways do it by themselves."
    )

    arguments = {"--once": {"action": "store_true", "required": True, "help": "one tick, and no more"}}

    def run(self, *, once: bool) -> None:
        began, worked = time.perf_counter(), time.process_time()
        with profile_in_use("relay"):
            did = reconcile.advance(now=self.now, via="command")
        seconds, processor = time.perf_counter() - began, time.process_time() - worked
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        if not did.ran:
            self.stdout.write("Another run is under way.")
            return
        self.stdout.write(
            f"{seconds:.3f} s ({processor:.3f} s of the processor), {peak} MB at most: "
            f"{did.looked_at} events looked at, {did.computed} changed, "
            f"{did.steps} with a step to take, {len(did.woken)} machines woken."
        )
