"""The formats by the names of vLLM's parsers, so that its flags carry over.

Each is declared in a file of this folder. A plug-in adds its own by an entry point: see `plugins`.
"""

from derender_service.parsers.families import (
    deepseek,
    gemma,
    glm,
    hermes,
    json_lists,
    kimi_k2,
    llama,
    minimax_m2,
    mistral,
    qwen3_coder,
    think,
)
from derender_service.parsers.formats import ReasoningFormat, ToolFormat

REASONING: dict[str, ReasoningFormat] = {format.name: format for format in think.FORMATS} | {
    "holo2": think.DEEPSEEK_V3,
    "step3p5": think.STEP3,
}
"""Reasoning formats; `openai_gptoss` is apart (see `harmony`)."""

TOOLS: dict[str, ToolFormat] = {
    format.name: format
    for format in (
        hermes.HERMES, qwen3_coder.QWEN3_CODER, qwen3_coder.NEMOTRON_V3, qwen3_coder.STEP3P5, qwen3_coder.SEED_OSS,
        llama.LLAMA3_JSON, llama.PYTHONIC, llama.LLAMA4_PYTHONIC, mistral.MISTRAL, deepseek.DEEPSEEK_V3, deepseek.DEEPSEEK_V31,
        kimi_k2.KIMI_K2, glm.GLM45, glm.GLM47, minimax_m2.MINIMAX_M2, json_lists.GRANITE, json_lists.GRANITE_20B_FC,
        json_lists.PHI4_MINI_JSON, json_lists.INTERNLM, json_lists.JAMBA, json_lists.HUNYUAN_A13B, json_lists.XLAM, gemma.GEMMA4,
        gemma.FUNCTIONGEMMA,
    )
} | {
    "qwen3_json": hermes.HERMES,
    "granite4": hermes.HERMES,
    "qwen3_xml": qwen3_coder.QWEN3_CODER,
    "llama4_json": llama.LLAMA3_JSON,
}  # fmt: skip
"""Tool formats; `openai` is apart."""
