"""The application: one middleware stack, and behind it a short way to the paths that are busy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send


class Application(Starlette):
    """Starlette, but for its own two middlewares, and for how the busiest routes are found.

    What raises is answered by the innermost of ours, ``Faults``; Starlette's would catch it first,
    at a cost for every message of every answer.
    """

    def build_middleware_stack(self) -> ASGIApp:
        """Return the middlewares around the routes."""
        direct = {
            route.path: route.app
            for route in self.routes
            if isinstance(route, Route) and route.methods == {"POST"}
        }
        app: ASGIApp = _ShortWay(direct, self.router)
        for middleware in reversed(self.user_middleware):
            app = middleware.cls(app, *middleware.args, **middleware.kwargs)
        return app


class _ShortWay:
    """Looks up what is posted to by its path; everything else is found by trying the routes."""

    def __init__(self, direct: Mapping[str, ASGIApp], routes: ASGIApp) -> None:
        self._direct = direct
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            await self._direct.get(scope["path"], self._routes)(scope, receive, send)
        else:
            await self._routes(scope, receive, send)
