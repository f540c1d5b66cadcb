"""Signed states: what a replica sent out comes in again, and nothing else does."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from derender_service.app import DerenderSettings, create_app
from derender_service.signing import StateKeys
from protocol.derender import DerenderContext, DerenderStreamState
from protocol.errors import BadRequest
from tests.derender.kit import cut, ids
from tests.derender.test_http import CHAT, COMPLETION, JsonObject, chunk, settings_for
from tests.derender.test_streams import generate_chunks
from tests.live import serving

KEYS = StateKeys((b"current", b"former"))
STATE_LIMIT = 4096

text = st.text(st.characters(codec="utf-8"), max_size=8)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
states = st.builds(
    DerenderStreamState,
    role_sent=st.booleans(),
    token_count=st.integers(0, 2**53),
    held_text=text,
    created=st.none() | st.integers(0, 2**33),
    last_tool_call_ids=st.lists(text, max_size=3),
    checkpoint=st.none() | st.dictionaries(text, plain, max_size=3),
    context=st.none() | st.builds(DerenderContext, stop=st.lists(st.text("ab\u00e9", min_size=1, max_size=4), max_size=2)),
)


def travelled(state: DerenderStreamState, *, shuffled: bool = False) -> DerenderStreamState:
    """The state after a client had it: through JSON, maybe with its fields in another order and other white space."""
    raw = state.wire()
    if shuffled:
        raw = json.dumps(json.loads(raw), sort_keys=True, indent=1, ensure_ascii=False).encode()
    return DerenderStreamState.model_validate_json(raw)


@given(state=states, shuffled=st.booleans())
def test_what_was_signed_is_accepted_and_loses_its_signature(state: DerenderStreamState, shuffled: bool) -> None:
    signed = travelled(KEYS.signed(state), shuffled=shuffled)
    assert len(signed.signature or "") == 43
    assert KEYS.verified(signed) == state


@given(state=states, other=states)
def test_a_signature_is_good_for_its_state_alone(state: DerenderStreamState, other: DerenderStreamState) -> None:
    moved = other.model_copy(update={"signature": KEYS.signed(state).signature})
    if other == state:
        assert KEYS.verified(moved) == state
    else:
        with pytest.raises(BadRequest):
            KEYS.verified(moved)


@given(state=states, forged=st.none() | st.text(max_size=64))
def test_no_other_text_is_a_signature(state: DerenderStreamState, forged: str | None) -> None:
    with pytest.raises(BadRequest) as refused:
        KEYS.verified(state.model_copy(update={"signature": forged}))
    assert refused.value.param == "stream_state.signature"
    assert "TANDEM_STATE_KEY" in refused.value.message


@given(state=states)
def test_keys_rotate_and_an_unknown_key_does_not_verify(state: DerenderStreamState) -> None:
    before, both, after = StateKeys((b"former",)), KEYS, StateKeys((b"current",))
    assert both.verified(before.signed(state)) == state
    assert both.signed(state) == after.signed(state)
    assert after.verified(both.signed(state)) == state
    with pytest.raises(BadRequest):
        after.verified(before.signed(state))


@given(state=states)
def test_without_keys_nothing_is_signed_and_a_signature_is_ignored(state: DerenderStreamState) -> None:
    none = StateKeys()
    assert none.signed(state) == state
    assert none.verified(KEYS.signed(state)) == state


def test_the_setting_lists_keys() -> None:
    assert StateKeys.of(SecretStr("one, two")).keys == (b"one", b"two")
    assert StateKeys.of(SecretStr("")) == StateKeys.of(None) == StateKeys()


@pytest.mark.parametrize("text", [",", "one,", "one,,two", " "])
def test_an_empty_key_is_a_mistake(text: str) -> None:
    with pytest.raises(ValidationError, match="an empty key"):
        DerenderSettings(state_key=SecretStr(text))


@pytest.fixture(scope="module")
def clients() -> Iterator[list[httpx.Client]]:
    """Replicas in the midst of a rotation, and one that knows another key alone."""
    keys = ("new,old", "old,new", "other")
    with (
        serving(create_app(settings_for("smollm2", state_key=keys[0]))) as one,
        serving(create_app(settings_for("smollm2", state_key=keys[1]))) as two,
        serving(create_app(settings_for("smollm2", state_key=keys[2]))) as three,
        serving(create_app(settings_for("smollm2"))) as four,
    ):
        made = [httpx.Client(base_url=url) for url in (one, two, three, four)]
        yield made
        for each in made:
            each.close()


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_stream_over_signing_replicas_says_what_one_without_a_key_says(clients: list[httpx.Client], data: st.DataObject) -> None:
    """And every state is signed, each answer is idempotent (L4), and the state stays small (L3)."""
    path, field = data.draw(st.sampled_from([(CHAT, "chat_request"), (COMPLETION, "completion_request")]))
    original: JsonObject = {"messages": [{"role": "user", "content": "x"}]} if path == CHAT else {"prompt": "x"}
    stream = generate_chunks(data.draw(cut(data.draw(ids("smollm2")))), "length", None, logprobs=False)
    signed, unsigned = None, None
    for number, piece in enumerate(stream):
        head = {"stream": True, "generate_chunk": piece, **({field: original, "prompt_token_ids": [504]} if number == 0 else {})}
        replica = clients[data.draw(st.integers(0, 1))]
        answer = replica.post(path, json={**head, "stream_state": signed}).raise_for_status()
        assert replica.post(path, json={**head, "stream_state": signed}).content == answer.content
        bare = clients[3].post(path, json={**head, "stream_state": unsigned}).raise_for_status().json()
        assert answer.json()["chunk"] == bare["chunk"]
        signed, unsigned = answer.json()["stream_state"], bare["stream_state"]
        assert {**unsigned, "signature": signed["signature"]} == signed
        assert len(json.dumps(signed)) < STATE_LIMIT


def begun(client: httpx.Client) -> JsonObject:
    state: JsonObject = (
        client.post(CHAT, json={"stream": True, "generate_chunk": chunk()}).raise_for_status().json()["stream_state"]
    )
    return state


def answered(client: httpx.Client, state: Any) -> tuple[int, str | None]:
    answer = client.post(CHAT, json={"stream": True, "generate_chunk": chunk(), "stream_state": state})
    return answer.status_code, answer.json()["error"]["param"] if answer.is_error else None


def test_states_that_no_replica_made_are_refused_with_what_to_do(clients: list[httpx.Client]) -> None:
    state = begun(clients[0])
    assert answered(clients[0], state) == (200, None)
    assert answered(clients[2], state) == (400, "stream_state.signature")
    assert answered(clients[0], begun(clients[3])) == (400, "stream_state.signature")
    assert answered(clients[0], {**state, "token_count": 0}) == (400, "stream_state.signature")
    assert answered(clients[0], {**state, "signature": "x" * 200}) == (400, "stream_state.signature")
    assert answered(clients[0], {}) == (400, "stream_state.signature")


def test_a_server_without_a_key_leaves_a_signature_out(clients: list[httpx.Client]) -> None:
    body = {"stream": True, "generate_chunk": {"choices": []}, "stream_state": begun(clients[0])}
    assert "signature" not in clients[3].post(CHAT, json=body).raise_for_status().json()["stream_state"]
