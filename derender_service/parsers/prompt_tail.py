"""Whether the prompt left reasoning open: told by its end, by nothing else."""

from collections.abc import Collection, Mapping, Sequence

from derender_service.detokenizer import Detokenizer
from derender_service.parsers.formats import ReasoningFormat
from derender_service.parsers.grammar import ANSWER, START, THINKING
from derender_service.parsers.markers import Marker
from derender_service.parsers.run import CONTENT, REASONING
from derender_service.parsers.state import State


def opening(
    reasoning: ReasoningFormat | None,
    marks: Mapping[int, str],
    control_ids: Collection[int],
    detokenizer: Detokenizer,
    prompt_token_ids: Sequence[int] | None,
) -> State:
    """The state before the first output id.

    Only the prompt's last turn counts, from its last control token on: what earlier turns quote says nothing. In it the last
    reasoning marker decides. White space that belongs to that marker and that the prompt does not have yet is due from the output.
    """
    if reasoning is None:
        return State(ANSWER)
    if not prompt_token_ids:
        return State(THINKING if reasoning.assumed else START)
    inner = {i for i in control_ids if detokenizer.vocabulary.token(i) in reasoning.inner} if reasoning.inner else ()
    begin, bounded = _last_turn(prompt_token_ids, frozenset(control_ids).difference(marks, inner))
    turn = prompt_token_ids[begin:]
    found = _last_marker((*reasoning.starts, *reasoning.ends), turn, marks, detokenizer)
    if found is None:
        return State(START)
    marker, rest = found
    if rest.strip() and not bounded:
        # Nothing separates the turns of this prompt, so that marker may be anyone's.
        return State(START)
    if marker in reasoning.ends:
        return State(CONTENT) if rest.strip() else State(ANSWER, skip=_due(marker, rest))
    if reasoning.label:
        label = reasoning.label.text + reasoning.label.after
        return State(REASONING, skip=label.removeprefix(rest) if label.startswith(rest) else "") if rest else State("label")
    return State(REASONING) if rest.strip() else State(THINKING, skip=_due(marker, rest))


def _last_turn(ids: Sequence[int], ends_turn: Collection[int]) -> tuple[int, bool]:
    """Where the last turn's text begins, and whether a control token tells."""
    for place in range(len(ids) - 1, -1, -1):
        if ids[place] in ends_turn:
            return place + 1, True
    return 0, False


def _last_marker(
    markers: Sequence[Marker], ids: Sequence[int], marks: Mapping[int, str], detokenizer: Detokenizer
) -> tuple[Marker, str] | None:
    """The marker that stands last, and the text after it. A marker that is a token of this tokenizer is looked for as that only."""
    tokens = frozenset(marks.values())
    by_text = {marker.text: marker for marker in markers}
    for place in range(len(ids) - 1, -1, -1):
        marker = by_text.get(marks.get(ids[place], ""))
        if marker is not None:
            return marker, detokenizer.whole(ids[place + 1 :], keep_special=True)
    spelled = [marker for marker in markers if marker.text not in tokens]
    if not spelled:
        return None
    text = detokenizer.whole(ids, keep_special=True)
    end, marker = max(
        ((text.rfind(m.text) + len(m.text), m) for m in spelled if m.text in text), key=lambda e: e[0], default=(0, None)
    )
    return (marker, text[end:]) if marker is not None else None


def _due(marker: Marker, rest: str) -> str:
    return marker.after[len(rest) :] if marker.after.startswith(rest) else ""
