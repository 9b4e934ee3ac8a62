"""Every other address below the API: a problem, too, and no page."""

from typing import NoReturn

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request

from fleet.api.calls import Call
from fleet.api.problems import Problem


@extend_schema(exclude=True)
class Elsewhere(Call):
    permission_classes = []

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        detail = "" if request.path.endswith("/") else f"`{request.path}` is no address here."
        raise Problem("not-found", detail)

    def get(self, request: Request) -> NoReturn:
        raise Problem("not-found")
