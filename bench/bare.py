"""The least that an ASGI application can do with a POST: read it and answer. What the gateway cannot be faster than."""

from __future__ import annotations

from fleet.gateway.http import Receive, Scope, Send, answer


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body and answers two bytes."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    await answer(send, 200, b"{}")
