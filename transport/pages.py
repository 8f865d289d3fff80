"""The pages behind the supervised routes: health, readiness, metrics, models, and OpenAI's envelope for everything that is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import trio
from quart import Response, has_websocket_context, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from actors.context import Gateway
from gate.envelope import PublicError, envelope, error_headers, refusal
from gate.refs import is_stable_token
from transport.metrics import Metrics

__all__ = ["ModelsFor", "make_pages"]

ModelsFor = Callable[[Mapping[bytes, bytes]], frozenset[str] | PublicError | None]
"""Header fields (lower case) -> the aliases that the key may use, None for all, or the refusal."""

BODY_BYTES_MAX: Final = 65_536  # no page here reads a body
CREATED: Final = 1_700_000_000  # an alias has no birthday; clients only want a number
_CODES: Final = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}


def make_pages(gateway: Gateway, metrics: Metrics, models_for: ModelsFor) -> QuartTrio:
    """The application. Quart's own limits are set, because its defaults would apply silently."""
    app = QuartTrio("tidegate")
    app.config["RESPONSE_TIMEOUT"] = None
    app.config["MAX_CONTENT_LENGTH"] = BODY_BYTES_MAX
    app.url_map.merge_slashes = False  # a path that is not there is a 404 and no redirect
    pages = _Pages(gateway, metrics, models_for)
    app.after_request(pages.name_request)
    app.register_error_handler(HTTPException, pages.refused)
    app.register_error_handler(Exception, pages.crashed)
    app.add_url_rule("/healthz", view_func=pages.healthz)
    app.add_url_rule("/readyz", view_func=pages.readyz)
    app.add_url_rule("/metrics", view_func=pages.metrics)
    app.add_url_rule("/v1/models", view_func=pages.models)
    app.add_url_rule("/v1/models/<path:alias>", view_func=pages.model)
    return app


class _Pages:
    """The views."""

    def __init__(self, gateway: Gateway, metrics: Metrics, models_for: ModelsFor) -> None:
        self._gateway = gateway
        self._metrics = metrics
        # Of its own: behind many scrapes nobody else has to wait for a thread.
        self._writers = trio.CapacityLimiter(1)
        self._models_for = models_for

    async def name_request(self, response: Response) -> Response:
        given = request.headers.get("x-request-id", "")
        name = given if is_stable_token(given) else self._gateway.world.new_id()
        response.headers["x-request-id"] = name
        return response

    async def refused(self, error: HTTPException) -> Response:
        if (
            has_websocket_context()
        ):  # at every path: what runs over one can't be watched as one stream
            response = _error(refusal(400, "unsupported_websocket"))
            response.headers["x-request-id"] = self._gateway.world.new_id()
            return response
        status = error.code if error.code in _CODES else 500
        response = _error(refusal(status, _CODES.get(status, "internal_error")))
        if status == 405:
            allowed = getattr(error, "valid_methods", None) or ()
            response.headers["allow"] = ", ".join(sorted(allowed))
        return response

    async def crashed(self, error: Exception) -> Response:
        self._gateway.crashed("", error)
        return _error(refusal(500, "internal_error"))

    async def healthz(self) -> dict[str, str]:
        return {"status": "ok"}

    async def readyz(self) -> Response | dict[str, str]:
        if self._gateway.draining:
            return _error(refusal(503, "draining"))
        now = trio.current_time()
        targets = [target for pool in self._gateway.pools.values() for target in pool.targets]
        if not any(target.health.wait_seconds(now) == 0 for target in targets):
            return _error(refusal(503, "no_provider"))
        return {"status": "ready"}

    async def metrics(self) -> Response:
        accept = request.headers.get("accept", "")
        text, content_type = await trio.to_thread.run_sync(
            self._metrics.now().text, accept, limiter=self._writers
        )
        return Response(text, content_type=content_type)

    async def models(self) -> Response | dict[str, object]:
        aliases = self._aliases()
        if isinstance(aliases, PublicError):
            return _error(aliases)
        return {"object": "list", "data": [_model(alias) for alias in aliases]}

    async def model(self, alias: str) -> Response | dict[str, object]:
        aliases = self._aliases()
        if isinstance(aliases, PublicError):
            return _error(aliases)
        if alias not in aliases:
            return _error(refusal(404, "model_not_found", param="model"))
        return _model(alias)

    def _aliases(self) -> list[str] | PublicError:
        headers = {
            name.lower().encode(): value.encode("latin-1", "replace")
            for name, value in request.headers
        }
        allowed = self._models_for(headers)
        if isinstance(allowed, PublicError):
            return allowed
        return [alias for alias in self._gateway.pools if allowed is None or alias in allowed]


def _model(alias: str) -> dict[str, object]:
    return {"id": alias, "object": "model", "created": CREATED, "owned_by": "tidegate"}


def _error(error: PublicError) -> Response:
    response = Response(envelope(error), error.status)
    for name, value in error_headers(error):
        response.headers[name.decode()] = value.decode()
    return response
