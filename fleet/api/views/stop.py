"""The switch that stops all approvals."""

from fleet.api.calls import Call
from fleet.api.describe import describe
from fleet.api.shapes.derive import shape
from fleet.api.shapes.requests import WhySerializer
from fleet.operations.policy import rules
from fleet.projections.policy import rules as stops

StopShape = shape(
    stops.StopRow,
    {
        "why": "Why all approvals were stopped.",
        "lifted_at": "Null as long as it holds.",
        "lifted_by": "Empty as long as it holds.",
    },
    name="Stop",
)
StopStateShape = shape(
    stops.StopState,
    {
        "current": "The stop that holds now; null where approvals are possible.",
        "pending": "Approvals that are decided and that Azure has not accepted: kept back while the stop holds.",
        "past": "The newest stops that were lifted.",
    },
    properties=("stopped",),
)


class Stop(Call):
    @describe(
        "get_stop",
        "Whether all approvals are stopped",
        ("Who stopped them and why, how many approvals are kept back, and the stops before."),
        answer=StopStateShape,
    )
    def get(self) -> stops.StopState:
        return stops.state()

    @describe(
        "stop_all_approvals",
        "Stop all approvals at once",
        "Approvers and admins may. `comment` says why and may not be empty. Until it is lifted no rule decides, no"
        " wave goes on, every approval is refused with `stopped`, and no order is given to an agent. What Azure was"
        " asked already goes on.",
        needs="approve",
        answer=StopStateShape,
        body=WhySerializer,
        problems=("stopped",),
    )
    def post(self) -> stops.StopState:
        rules.stop_all(actor=self.actor.because(self.wanted["comment"]), now=self.now)
        return stops.state()


class LiftStop(Call):
    @describe(
        "lift_stop",
        "Let approvals go on",
        "What was decided before the stop goes on, unless NotBefore is past.",
        needs="admin",
        answer=StopStateShape,
        body=WhySerializer,
        problems=("not-stopped",),
    )
    def post(self) -> stops.StopState:
        rules.lift(actor=self.actor.because(self.wanted["comment"]), now=self.now)
        return stops.state()
