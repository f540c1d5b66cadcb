"""Tokenizers of families that cannot be fetched: real ones with these families' marker tokens added, or put in reserved places.

Added ids go on from the last one, in the order given here, so that ids written down in test cases keep their meaning.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

_OTHERS = [
    *("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>', "<|turn>", "<turn|>", "<|tool_response>"),
    *("<seed:bos>", "<seed:eos>", "<seed:think>", "</seed:think>", "<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>"),
    *("<seed:tool_call>", "</seed:tool_call>", "<start_function_call>", "<end_function_call>", "<escape>"),
    *("<start_function_response>", "<|action_start|>", "<|plugin|>", "<|action_end|>", "<tool_calls>", "</tool_calls>"),
    *("<|tool_call|>", "<|/tool_call|>", "<function_call>", "<|python_tag|>", "<|python_start|>", "<|python_end|>"),
    *("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[INST]", "[/INST]", "[THINK]", "[/THINK]", "<response>", "</response>"),
]
"""Markers of the families that have no tokenizer of their own here."""

ADDED = {
    "qwen3_mistral": ("qwen3", ["[TOOL_CALLS]"]),
    "qwen3_mistral11": ("qwen3", ["[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]"]),
    "qwen3_glm": (
        "qwen3",
        ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"],
    ),
    "qwen3_kimi": (
        "qwen3",
        [
            *(f"<|tool_calls_section_{edge}|>" for edge in ("begin", "end")),
            *(f"<|tool_call_{part}|>" for part in ("begin", "argument_begin", "end")),
            *(f"<|im_{role}|>" for role in ("user", "assistant", "middle")),
        ],
    ),
    "qwen3_minimax": ("qwen3", ["<minimax:tool_call>", "</minimax:tool_call>", "]~b]", "[e~["]),
    "smollm2_granite": ("smollm2", ["<|tool_call|>", "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"]),
    "qwen3_marked": ("qwen3", _OTHERS),
}
REPLACED = {
    "llama3_1_pytag": ("llama3_1", {128008: "<|eom_id|>", 128010: "<|python_tag|>"}),
    "deepseek_v3_think": ("deepseek_v3", {128798: "<think>", 128799: "</think>"}),
}
NAMES = (*ADDED, *REPLACED)


def base(name: str) -> str:
    """The tokenizer that this one is made of."""
    return ADDED[name][0] if name in ADDED else REPLACED[name][0]


def digest(name: str) -> str:
    """Changes with what is added or replaced."""
    return sha256(repr(ADDED.get(name) or REPLACED[name]).encode()).hexdigest()[:12]


def write(name: str, source: Path, target: Path) -> None:
    """Makes `name` of its base in folder `source`."""
    tokenizer, config = (json.loads((source / file).read_text("utf-8")) for file in ("tokenizer.json", "tokenizer_config.json"))
    if name in ADDED:
        _add(tokenizer, config, ADDED[name][1])
    else:
        _replace(tokenizer, config, REPLACED[name][1])
    for file, value in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        (target / file).write_text(json.dumps(value, ensure_ascii=False), "utf-8")


def _add(tokenizer: dict[str, Any], config: dict[str, Any], tokens: list[str]) -> None:
    first = 1 + max([*tokenizer["model"]["vocab"].values(), *(token["id"] for token in tokenizer["added_tokens"])])
    for token_id, token in enumerate(tokens, first):
        entry = {
            "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": token.startswith(("<|", "[", "]")),
        }  # fmt: skip
        tokenizer["added_tokens"].append({"id": token_id, **entry})
        if "added_tokens_decoder" in config:
            config["added_tokens_decoder"][str(token_id)] = entry


def _replace(tokenizer: dict[str, Any], config: dict[str, Any], tokens: dict[int, str]) -> None:
    vocabulary, described = tokenizer["model"]["vocab"], config.get("added_tokens_decoder", {})
    spelled = {token_id: token for token, token_id in vocabulary.items()}
    for token_id, token in tokens.items():
        change = {"content": token, "special": token.startswith("<|")}
        if token_id in spelled:
            del vocabulary[spelled[token_id]]
            vocabulary[token] = token_id
        for entry in tokenizer["added_tokens"]:
            if entry["id"] == token_id:
                entry.update(change)
        if str(token_id) in described:
            described[str(token_id)].update(change)
