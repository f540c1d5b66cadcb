"""A decoder of the Llama kind, computed by the C kernels beside this file. Its structures mirror those of `decoder.c`."""

from array import array
from collections.abc import Iterable
from ctypes import CDLL, POINTER, Structure, byref, c_float, c_int, c_long, c_void_p
from functools import cache
from itertools import chain
from typing import Any

import torch
from torch.nn.functional import pad

from generate_worker.engine.block_pool import BLOCK
from generate_worker.engine.native import compiler, memory
from generate_worker.engine.network import Span

_MODELS = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
"""Those whose layers are the ones that `decoder.c` computes."""

_ROPE_OF_THE_BATCH = frozenset({"dynamic", "longrope"})
"""Rotary positions that depend on the longest sequence of a step."""

_BAND = 48
"""Query rows that attend at once: as many as a task of a matrix product has."""

_PANEL = 16
"""`WIDTH` of `numbers.h`."""

_LARGEST_HEAD = 256
"""`DEPTH` of `matrix.h`: the terms of a score are summed up in one go."""


class _Matrix(Structure):
    _fields_ = [("panels", c_void_p), ("bias", c_void_p), ("inputs", c_long), ("outputs", c_long)]


class _Layer(Structure):
    _fields_ = [
        *((name, _Matrix) for name in ("qkv", "o", "gate_up", "down")),
        *((name, c_void_p) for name in ("norm_before", "norm_between", "q_norm", "k_norm", "keys", "values")),
        ("window", c_long),
    ]


class _Heads(Structure):
    _fields_ = [("heads", c_long), ("kv_heads", c_long), ("dim", c_long), ("scale", c_float)]


class _Model(Structure):
    _fields_ = [
        *((name, c_long) for name in ("hidden", "inner", "layers")),
        ("heads", _Heads),
        ("epsilon", c_float),
        ("layer", POINTER(_Layer)),
        ("norm", c_void_p),
        ("head", _Matrix),
    ]


class _Step(Structure):
    _fields_ = [
        *((name, c_long) for name in ("rows", "kept", "groups")),
        *((name, c_void_p) for name in ("x", "cos", "sin", "slots", "queries", "tables", "keeps", "logits", "buffer")),
    ]


def serves(model: Any) -> bool:
    """Whether the kernels compute this model: its kind, the type of its numbers, and the sizes of its parts."""
    if type(model).__name__ not in _MODELS or model.device.type != "cpu" or model.dtype not in compiler.DTYPES:
        return False
    config = model.config
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    layers = model.model.layers
    plain = [layer.self_attn.o_proj for layer in layers]
    plain += [getattr(layer.mlp, name) for layer in layers for name in ("gate_proj", "up_proj", "down_proj")]
    plain.append(model.lm_head)
    linear = [getattr(layer.self_attn, name) for layer in layers for name in ("q_proj", "k_proj", "v_proj")] + plain
    return (
        config.hidden_act == "silu"
        and rope.get("rope_type", "default") not in _ROPE_OF_THE_BATCH
        and all(type(one) is torch.nn.Linear for one in linear)
        and all(one.bias is None for one in plain)
        and config.hidden_size % _PANEL == 0
        and layers[0].self_attn.head_dim % _PANEL == 0
        and layers[0].self_attn.head_dim <= _LARGEST_HEAD
    )


@cache
def _team(library: CDLL, threads: int) -> c_void_p:
    """As threads cost something and models of one process take turns, those of one kind share a team."""
    library.tandem_team.restype = c_void_p
    team = c_void_p(library.tandem_team(c_int(threads)))
    if not team:
        raise compiler.NoKernels(f"the system does not give {threads} threads")
    return team


class NativeNetwork:
    """Takes over the weights of a model that `serves` said yes to; what it had is given up layer by layer. Raises
    `compiler.NoKernels`."""

    def __init__(self, model: Any, threads: int) -> None:
        self._library = compiler.library(model.dtype)
        self._library.tandem_buffer_size.restype = c_long
        self._team = _team(self._library, threads)
        self._dtype: torch.dtype = model.dtype
        self._threads = threads
        self._embeddings = model.get_input_embeddings()
        self._rotary = model.model.rotary_emb
        self._held: list[torch.Tensor] = []
        attention = model.model.layers[0].self_attn
        heads, kv_heads = model.config.num_attention_heads, model.config.num_key_value_heads
        self._heads = _Heads(heads, kv_heads, attention.head_dim, attention.scaling)
        self._position: int = kv_heads * attention.head_dim
        self._vocabulary = model.lm_head.out_features
        self._layers = (_Layer * len(model.model.layers))()
        self._cache: list[torch.Tensor] = []
        self._buffer = torch.empty(0)
        self.windows: dict[int, int | None] = {}
        self._take(model)
        self._model = _Model(
            model.config.hidden_size,
            model.config.intermediate_size,
            len(self._layers),
            self._heads,
            model.config.rms_norm_eps,
            self._layers,
            self._floats(model.model.norm.weight),
            self._head,
        )

    @property
    def bytes_per_token(self) -> int:
        return 2 * self._position * self._dtype.itemsize * len(self._layers)

    def allocate(self, blocks: int) -> None:
        size = (blocks + 1) * BLOCK * self._position
        self._cache = memory.tensors([size] * (2 * len(self._layers)), self._dtype)
        for index, layer in enumerate(self._layers):
            layer.keys, layer.values = (one.data_ptr() for one in self._cache[2 * index : 2 * index + 2])

    def scrub(self, blocks: list[int]) -> None:
        """Nothing: of a block no more is read than its owner has written."""

    def forward(self, decodes: list[Span], chunks: list[Span], ids: list[int], kept: list[int]) -> torch.Tensor:
        spans = [*decodes, *chunks]
        places = torch.tensor([[place for span in spans for place in range(span.start, span.end)]])
        x = self._embeddings(torch.tensor(ids)).float().contiguous()
        cos, sin = self._rotary(x, places)
        queries = list(self._queries(spans))
        logits = torch.empty(len(kept), _whole(self._vocabulary))
        numbers = [
            array("q", chain.from_iterable(part))
            for part in ([span.slots() for span in spans], queries, [span.table for span in spans], [kept])
        ]
        slots, flat, tables, keeps = (one.buffer_info()[0] for one in numbers)
        step = _Step(
            len(ids), len(kept), len(queries), x.data_ptr(), cos.data_ptr(), sin.data_ptr(), slots, flat, tables, keeps,
            logits.data_ptr(),
        )  # fmt: skip
        size = self._library.tandem_buffer_size(byref(self._model), byref(step), c_int(self._threads))
        if size > self._buffer.numel():
            self._buffer = torch.empty(size)
        step.buffer = self._buffer.data_ptr()
        # ctypes gives the interpreter's lock up for the call: the event loop goes on meanwhile.
        self._library.tandem_step(self._team, byref(self._model), byref(step))
        return logits[:, : self._vocabulary]

    def _queries(self, spans: list[Span]) -> Iterable[tuple[int, int, int, int]]:
        """What attends together: (row, position, count, where its table begins)."""
        most, table = max(1, _BAND * self._heads.kv_heads // self._heads.heads), 0
        for span in spans:
            for done in range(0, span.count, most):
                yield span.offset + done, span.start + done, min(most, span.count - done), table
            table += len(span.table)

    def _take(self, model: Any) -> None:
        layers, head = model.model.layers, [model.lm_head.weight]
        shapes = [shape for layer in layers for shape in map(_packed, _weights(layer))] + [_packed(head)]
        areas = iter(memory.tensors([rows * depth for rows, depth in shapes], self._dtype))
        for index, layer in enumerate(layers):
            own, attention = self._layers[index], layer.self_attn
            own.qkv, own.o, own.gate_up, own.down = (self._pack(weights, next(areas)) for weights in _weights(layer))
            if attention.q_proj.bias is not None:
                joint = (attention.q_proj, attention.k_proj, attention.v_proj)
                own.qkv.bias = self._floats(torch.cat([one.bias for one in joint]))
            own.norm_before = self._floats(layer.input_layernorm.weight)
            own.norm_between = self._floats(layer.post_attention_layernorm.weight)
            if hasattr(attention, "q_norm"):
                own.q_norm, own.k_norm = self._floats(attention.q_norm.weight), self._floats(attention.k_norm.weight)
            window = _window(attention, model.config)
            own.window, self.windows[index] = window or 0, window
            layer.to("meta")
        self._head = self._pack(head, next(areas))

    def _pack(self, weights: list[torch.Tensor], area: torch.Tensor) -> _Matrix:
        """`weights` [out, in] under each other, in panels; with their panels in turns where there are two."""
        whole = _together([weight.detach() for weight in weights])
        rows, depth = whole.shape
        self._library.tandem_pack(c_void_p(whole.data_ptr()), c_long(rows), c_long(depth), c_void_p(area.data_ptr()))
        self._held.append(area)
        return _Matrix(area.data_ptr(), None, depth, rows)

    def _floats(self, values: torch.Tensor) -> int:
        held = values.detach().float().clone().contiguous()
        self._held.append(held)
        return held.data_ptr()


def _window(attention: Any, config: Any) -> int | None:
    """The layer's own where its kind has layers of two kinds, else the model's."""
    found: int | None = getattr(attention if hasattr(attention, "sliding_window") else config, "sliding_window", None)
    return found


def _weights(layer: Any) -> list[list[torch.Tensor]]:
    """What is computed in one call each. Two in a call are a gate and what it lets through."""
    own, mlp = layer.self_attn, layer.mlp
    calls = ((own.q_proj, own.k_proj, own.v_proj), (own.o_proj,), (mlp.gate_proj, mlp.up_proj), (mlp.down_proj,))
    return [[one.weight for one in call] for call in calls]


def _packed(weights: list[torch.Tensor]) -> tuple[int, int]:
    """The shape that they take."""
    counts = [weight.shape[0] for weight in weights]
    return (sum(map(_whole, counts)) if len(counts) == 2 else _whole(sum(counts))), weights[0].shape[1]


def _together(weights: list[torch.Tensor]) -> torch.Tensor:
    if len(weights) != 2:
        return torch.cat(weights).contiguous()
    depth = weights[0].shape[1]
    filled = [pad(weight, (0, 0, 0, -weight.shape[0] % _PANEL)).view(-1, _PANEL, depth) for weight in weights]
    return torch.stack(filled, 1).view(-1, depth)


def _whole(count: int) -> int:
    return -(-count // _PANEL) * _PANEL
