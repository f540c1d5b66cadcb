"""The call that render stands for, transformers' `apply_chat_template`, and the least that serves it: `python -m benchmarks.bare`.

An endpoint costs more than an empty one and the call together: its thread wakes on a processor that has just done something else.
"""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from fastapi import FastAPI, Request, Response
from transformers import PreTrainedTokenizerFast

from benchmarks.empty import serve
from tests.tokenizers import folder

app = FastAPI()
_pool = ThreadPoolExecutor()


@cache
def _tokenizer() -> Any:
    files = folder("qwen3")
    template = json.loads((files / "tokenizer_config.json").read_bytes())["chat_template"]
    return PreTrainedTokenizerFast(tokenizer_file=str(files / "tokenizer.json"), chat_template=template)


def call(request: dict[str, Any]) -> list[int]:
    """The token ids of a chat request."""
    ids: list[int] = _tokenizer().apply_chat_template(
        request["messages"], tools=request["tools"], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return ids


def _answer(body: bytes) -> bytes:
    return json.dumps({"token_ids": call(json.loads(body))}, separators=(",", ":")).encode()


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/v1/chat/completions/render")
async def render(request: Request) -> Response:
    body = await request.body()
    answer = await asyncio.get_running_loop().run_in_executor(_pool, _answer, body)
    return Response(answer, media_type="application/json")


if __name__ == "__main__":
    serve(app)
