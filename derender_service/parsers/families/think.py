"""Reasoning between two markers: most families, which differ in the markers and in the white space around them."""

from derender_service.parsers.formats import ReasoningFormat
from derender_service.parsers.markers import Marker


def _think(name: str, start: Marker, end: Marker, *, source: str, assumed: bool = False) -> ReasoningFormat:
    return ReasoningFormat(name, (start,), (end,), assumed=assumed, source=source)


_LINES = Marker("<think>", after="\n")
_BARE = Marker("<think>"), Marker("</think>")

DEEPSEEK_R1 = _think(
    "deepseek_r1", _LINES, Marker("</think>", before="\n", after="\n\n"), assumed=True,
    source="R1's template opens <think>\\n in the prompt; early ones leave it to the model. History drops the reasoning.",
)  # fmt: skip
DEEPSEEK_V3 = _think("deepseek_v3", *_BARE, source="V3.1's template: <think> or </think> at the prompt's end, no white space")
QWEN3 = _think(
    "qwen3", _LINES, Marker("</think>", before="\n", after="\n\n"),
    source="Qwen3's template: '<think>\\n' + reasoning + '\\n</think>\\n\\n' + content",
)  # fmt: skip
GLM45 = _think(
    "glm45", Marker("<think>", before="\n"), Marker("</think>", after="\n"),
    source="GLM-4.5's and 4.6's template: '\\n<think>' + reasoning + '</think>' + '\\n' + content; 4.7's has no white space",
)  # fmt: skip
GLM47 = _think("glm47", *_BARE, source="GLM-4.7's template: '<think>' + reasoning + '</think>' + content, no white space")
MISTRAL = ReasoningFormat(
    "mistral",
    (Marker("[THINK]"), Marker("<think>", after="\n")),
    (Marker("[/THINK]"), Marker("</think>", before="\n", after="\n")),
    source="Magistral: [THINK] tokens since v13 (mistral_common), <think> as text in v11's system prompt",
)  # fmt: skip
SEED_OSS = ReasoningFormat(
    "seed_oss", (Marker("<seed:think>", before="\n"),), (Marker("</seed:think>", after="\n"),),
    inner=("<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>"),
    source="Seed-OSS' template: '\\n<seed:think>' + reasoning + '</seed:think>' + '\\n' + content",
)  # fmt: skip
MINIMAX_M2 = _think(
    "minimax_m2", _LINES, Marker("</think>", before="\n", after="\n\n"), assumed=True,
    source="MiniMax-M2's template: the prompt always ends in <think>\\n; history '\\n</think>\\n\\n'",
)  # fmt: skip
KIMI_K2 = _think("kimi_k2", *_BARE, source="Kimi-K2-Thinking's template: '<think>' + reasoning + '</think>' + content")
STEP3 = _think(
    "step3", _LINES, Marker("</think>", before="\n", after="\n"), assumed=True,
    source="Step3's prompt ends in <think>\\n; Step-3.5's template writes '\\n</think>\\n' (Step3's history was not found)",
)  # fmt: skip
NEMOTRON_V3 = _think(
    "nemotron_v3", _LINES, Marker("</think>", before="\n", after="\n"), assumed=True,
    source="Nemotron 3's template: '<think>\\n' + reasoning + '\\n</think>\\n' + content",
)  # fmt: skip
OLMO3 = _think("olmo3", *_BARE, assumed=True, source="OLMo 3's training template: the prompt ends in <think>, history is verbatim")
GEMMA4 = ReasoningFormat(
    "gemma4", (Marker("<|channel>"),), (Marker("<channel|>", before="\n"),), label=Marker("thought", after="\n"),
    source="Gemma 4's template: '<|channel>thought\\n' + thinking + '\\n<channel|>'",
)  # fmt: skip
ERNIE45 = ReasoningFormat(
    "ernie45", (_LINES,), (Marker("</think>", before="\n", after="\n\n"),), assumed=True,
    wrap=(Marker("<response>", after="\n"), Marker("</response>", before="\n", after="\n")),
    source="ERNIE-4.5-Thinking: '</think>', then the answer in '<response>\\n' … '\\n</response>\\n'",
)  # fmt: skip
HUNYUAN_A13B = ReasoningFormat(
    "hunyuan_a13b", (_LINES,), (Marker("</think>", before="\n", after="\n"),),
    wrap=(Marker("<answer>", after="\n"), Marker("</answer>", before="\n")),
    source="Hunyuan-A13B's README: '<think>\\n' … '\\n</think>\\n<answer>\\n' … '\\n</answer>', all ordinary text",
)  # fmt: skip
GRANITE = ReasoningFormat(
    "granite",
    tuple(Marker(f"{words} my thought process:", after=" ") for words in ("Here is", "Here's")),
    tuple(Marker(f"{words} my response:", before="\n\n", after=" ") for words in ("Here is", "Here's")),
    source="Granite 3.2's system prompt asks for these phrases; no token marks them",
)  # fmt: skip

FORMATS = (
    DEEPSEEK_R1, DEEPSEEK_V3, QWEN3, GLM45, GLM47, MISTRAL, SEED_OSS, MINIMAX_M2, KIMI_K2, STEP3, NEMOTRON_V3, OLMO3, GEMMA4,
    ERNIE45, HUNYUAN_A13B, GRANITE,
)  # fmt: skip
