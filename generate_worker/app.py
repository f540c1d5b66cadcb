"""The generate worker as an app: settings in, FastAPI out."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import FastAPI
from pydantic import ByteSize, Field

from generate_worker.admission import Limits
from generate_worker.engine.base import Engine, Observer
from generate_worker.metrics import WorkerMetrics
from generate_worker.routes import Worker, router
from generate_worker.stop_tokens import StopTokens
from protocol.errors import Overloaded
from protocol.models import Health
from service_kit import VERSION
from service_kit.app import build_app
from service_kit.metrics import Metrics
from service_kit.settings import ServiceSettings

if TYPE_CHECKING:
    from generate_worker.structure import Structures

SERVICE = "generate"
_UNLIMITED = 2**31


class WorkerSettings(ServiceSettings):
    """Flags of the worker."""

    model: str = Field("smollm2", description="smollm2 (packaged), a local Hugging Face folder, a GGUF file, or a hub id.")
    served_model_name: str | None = Field(None, description="Name that clients use; by default the value of --model.")
    max_model_len: Annotated[int, Field(ge=2)] | None = Field(
        None, description="Context length in tokens; by default the model's own."
    )
    tokenizer_for_grammar: str | None = Field(
        None,
        description="Model (as in --model) whose tokenizer structured outputs are written in; without it they are refused.",
    )
    engine: Literal["torch", "replay"] = Field("torch", description="torch runs the model; replay plays ids back (for tests).")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where the model runs; auto takes CUDA where there is one.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Precision of weights and KV cache; auto is float32 on the CPU, bfloat16 on CUDA."
    )
    cpu_kernels: Literal["auto", "native", "torch"] = Field(
        "auto", description="What computes on the CPU: native kernels (they need a C compiler), torch, or whichever serves best."
    )
    kv_cache_memory: Annotated[ByteSize, Field(ge=1)] | None = Field(
        None,
        description="Memory of the KV cache (512MiB, 4GiB). By default a quarter of what is free on the CPU, 4 GiB at most, and 85 "
        "per cent of what the model leaves free on CUDA.",
    )
    enable_prefix_caching: bool = Field(True, description="Let a prompt reuse what others that began alike have computed.")
    max_num_seqs: Annotated[int, Field(ge=1, le=1024)] = Field(64, description="Choices that run at once, memory allowing.")
    max_queue: Annotated[int, Field(ge=0)] = Field(64, description="Requests that may wait; 503 beyond.")
    prefill_chunk_tokens: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Prompt tokens of one step; by default 64 on the CPU and 512 on CUDA while streams run, else 256 and 2048.",
    )
    max_logprobs: Annotated[int, Field(ge=-1)] = Field(20, description="Largest logprobs a request may ask for; -1 for no bound.")
    torch_threads: Annotated[int, Field(ge=0)] = Field(0, description="CPU threads of one model step; 0 takes all cores given.")
    script: Path | None = Field(
        None, description="JSON lines to replay, with failures if wanted (docs/worker.md); without it ids are made up."
    )
    replay_tokens_per_second: Annotated[float, Field(ge=0)] = Field(
        0.0, description="Replay rate of one choice; 0: as fast as it goes."
    )
    replay_chunk_size: Annotated[int, Field(ge=1)] = Field(1, description="Ids in one replayed event.")
    replay_vocab_size: Annotated[int, Field(ge=2)] = Field(
        49_152, description="Vocabulary that replay admits and makes ids up from; by default that of the packaged model."
    )
    replay_eos_token_id: Annotated[int, Field(ge=0)] | None = Field(2, description="Id that ends a replayed choice.")


def create_app(settings: WorkerSettings) -> FastAPI:
    """Loads the model, which takes its time. Raises `model_profile.errors.ProfileError` with one line that says what is wrong."""
    metrics = Metrics(SERVICE)
    own = WorkerMetrics(metrics)
    engine, limits = _torch(settings, own.observer) if settings.engine == "torch" else _replay(settings, own.observer)
    own.watch(engine)

    def fail_open() -> None:
        engine.fail_all(Overloaded("this server is shutting down", retry_after=5))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        fail_open()
        await asyncio.to_thread(engine.close)

    async def health() -> Health:
        return Health(status="ok" if engine.alive else "down", service=SERVICE, version=VERSION)

    app = build_app(SERVICE, "Token ids in, token ids out.", settings, [router], metrics=metrics, lifespan=lifespan, health=health)
    app.state.worker = Worker(engine, limits, settings.model)
    app.state.lifecycle.on_expired(fail_open)
    return app


def _limits(settings: WorkerSettings, vocab_size: int, max_model_len: int, stop_tokens: StopTokens) -> Limits:
    name = settings.served_model_name or settings.model
    structures = _structures(settings.tokenizer_for_grammar, vocab_size, stop_tokens) if settings.tokenizer_for_grammar else None
    return Limits(name, vocab_size, max_model_len, stop_tokens, settings.max_num_seqs, settings.max_logprobs, structures)


def _structures(model: str, vocab_size: int, stop_tokens: StopTokens) -> "Structures":
    # Imported here: a worker that knows no tokenizer needs none of it.
    from generate_worker.structure import Structures
    from model_profile import load

    # The context is the worker's own business.
    return Structures(load(model, max_model_len=2), vocab_size, stop_tokens.all)


def _torch(settings: WorkerSettings, observer: Observer) -> tuple[Engine, Limits]:
    # Before torch is imported, as its OpenMP reads this once: a thread that waits for the others must sleep. By default it spins,
    # and where other services share the cores a step then takes ten times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Imported here: the replay engine runs without torch.
    from generate_worker.engine.loading import load_torch_engine

    loaded = load_torch_engine(
        settings.model,
        device=settings.device,
        dtype=settings.dtype,
        max_seqs=settings.max_num_seqs,
        max_queue=settings.max_queue,
        max_model_len=settings.max_model_len,
        chunk_tokens=settings.prefill_chunk_tokens,
        kv_memory=settings.kv_cache_memory,
        shares_prefixes=settings.enable_prefix_caching,
        threads=settings.torch_threads,
        kernels=settings.cpu_kernels,
        observer=observer,
    )
    return loaded.engine, _limits(settings, loaded.vocab_size, loaded.max_model_len, loaded.stop_tokens)


def _replay(settings: WorkerSettings, observer: Observer) -> tuple[Engine, Limits]:
    from generate_worker.engine.block_pool import BlockPool, blocks_for
    from generate_worker.engine.replay_engine import ReplayEngine
    from generate_worker.engine.replay_script import Pace, Script, Synthetic
    from generate_worker.engine.scheduler import Scheduler

    eos = settings.replay_eos_token_id
    stop_tokens = StopTokens(eos, frozenset(() if eos is None else (eos,)))
    max_model_len = settings.max_model_len or 8192
    pace = Pace(settings.replay_tokens_per_second, settings.replay_chunk_size)
    made_up = Synthetic(settings.replay_vocab_size, pace, stop_tokens.all)
    pool = BlockPool(blocks_for(max_model_len) * settings.max_num_seqs)
    engine = ReplayEngine(
        Script.read(settings.script, made_up) if settings.script else made_up,
        Scheduler(pool, settings.max_num_seqs, _UNLIMITED, settings.max_queue, settings.enable_prefix_caching),
        observer,
    )
    return engine, _limits(settings, settings.replay_vocab_size, max_model_len, stop_tokens)
