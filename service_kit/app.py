"""Builds the app around a service's routes."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from protocol.errors import ErrorInfo, ErrorResponse, TandemError
from protocol.models import Health
from service_kit import VERSION
from service_kit.body import install_openapi
from service_kit.edge import Edge
from service_kit.lifecycle import Lifecycle
from service_kit.metrics import Metrics
from service_kit.settings import ServiceSettings

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
HealthCheck = Callable[[], Awaitable[Health]]


def build_app(
    service: str,
    description: str,
    settings: ServiceSettings,
    routers: list[APIRouter],
    *,
    metrics: Metrics | None = None,
    lifespan: Lifespan | None = None,
    health: HealthCheck | None = None,
) -> FastAPI:
    """A FastAPI app with `/health`, `/metrics`, the wire's errors and the edge. Services put what routes need in `app.state`."""
    app = FastAPI(title=f"Tandem {service}", version=VERSION, description=description, lifespan=lifespan)
    app.state.metrics = metrics = metrics or Metrics(service)
    app.state.lifecycle = lifecycle = Lifecycle()
    for router in routers:
        app.include_router(router)
    app.include_router(_own_routes(service, metrics, lifecycle, health))
    app.add_exception_handler(TandemError, _wire_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _client_gone)
    app.add_middleware(
        Edge,
        metrics=metrics,
        lifecycle=lifecycle,
        api_key=settings.api_key.get_secret_value() if settings.api_key else None,
        max_body_bytes=settings.max_body_bytes,
    )
    install_openapi(app)
    return app


def _own_routes(service: str, metrics: Metrics, lifecycle: Lifecycle, check: HealthCheck | None) -> APIRouter:
    router = APIRouter(tags=["service"])

    @router.get("/health", response_model=Health, responses={503: {"model": Health}})
    async def health() -> Response:
        """200 while the service can answer, 503 while it is draining or what it needs is down."""
        state = await check() if check else Health(status="ok", service=service, version=VERSION)
        if lifecycle.draining:
            state.status = "draining"
        status = 200 if state.status in ("ok", "degraded") else 503
        return Response(state.wire(), status_code=status, media_type="application/json")

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def expose() -> Response:
        """Prometheus text."""
        text, content_type = metrics.expose()
        return Response(text, media_type=content_type)

    return router


async def _wire_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, TandemError)
    return Response(
        ErrorResponse(error=error.info).wire(), status_code=error.status, headers=dict(error.headers), media_type="application/json"
    )


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kinds = {404: "NotFoundError", 405: "MethodNotAllowedError"}
    message = f"{error.detail}: {request.method} {request.url.path}"
    info = ErrorInfo(message=message, type=kinds.get(error.status_code, "BadRequestError"), code=error.status_code)
    return JSONResponse(ErrorResponse(error=info).model_dump(), status_code=error.status_code, headers=error.headers)


async def _client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)
