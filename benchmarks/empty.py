"""The floor: a FastAPI endpoint that reads a JSON body and answers one of the same size, served as our services are."""

import argparse
from typing import Any

import uvicorn
from fastapi import FastAPI, Response

app = FastAPI()


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/echo")
async def echo(body: dict[str, Any]) -> dict[str, Any]:
    return body


@app.post("/sized")
async def sized(body: dict[str, Any], size: int) -> Response:
    """`size` bytes, for answers of another size than the body's. They are not made of values: that would not be empty."""
    return Response(b'"' + b"0" * (size - 2) + b'"', media_type="application/json")


def serve(app: FastAPI) -> None:
    """On the `--port` of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=parser.parse_args().port,
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=75,
    )


if __name__ == "__main__":
    serve(app)
