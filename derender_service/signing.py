"""Signed state: what a client sends back is what a replica of this service sent out (`--state-key`).

A state is checked whether it is signed or not. The signature keeps out states that pass the checks and that no replica has made. It
is applied where states come in and go out (the routes), never in the core.
"""

import hmac
import json
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

from pydantic import SecretStr

from protocol.base import Wire
from protocol.derender import DerenderStreamState
from protocol.errors import BadRequest

W = TypeVar("W", bound=Wire)

_PURPOSE = b"tandem derender stream state 1\n"
"""Put before what is signed, so that a signature made with the same key for anything else is none of a state."""

_PARAM = "stream_state.signature"


@dataclass(frozen=True)
class StateKeys:
    """The first key signs, each one verifies: a key is replaced without breaking streams. Without keys nothing is signed."""

    keys: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, setting: SecretStr | None) -> "StateKeys":
        """The keys of `--state-key`: several with commas between. Raises `ValueError` for an empty one."""
        text = setting.get_secret_value() if setting is not None else ""
        keys = tuple(key.strip().encode() for key in text.split(",")) if text else ()
        if not all(keys):
            raise ValueError("an empty key; give one key, or several with commas between")
        return cls(keys)

    def signed(self, state: DerenderStreamState) -> DerenderStreamState:
        """The state as it goes out."""
        if not self.keys:
            return state
        return state.model_copy(update={"signature": signature(self.keys[0], canonical(state))})

    def verified(self, state: DerenderStreamState) -> DerenderStreamState:
        """The state without its signature. Raises `BadRequest` for a missing or wrong one; without keys any is ignored."""
        given = state.signature
        if self.keys:
            self._check(state, given)
        return state if given is None else state.model_copy(update={"signature": None})

    def _check(self, state: DerenderStreamState, given: str | None) -> None:
        if given is None:
            raise BadRequest(
                "the state has no signature, and this server takes none without one: send back the whole stream_state of the last"
                " answer; if that has no signature either, a replica runs without --state-key (TANDEM_STATE_KEY)",
                param=_PARAM,
            )
        text = canonical(state)
        # Every key is tried, also after a match: the time tells nothing of which it was.
        if not sum(hmac.compare_digest(signature(key, text).encode(), given.encode()) for key in self.keys):
            raise BadRequest(
                "the state's signature is wrong: the state was changed on its way, or signed with a key that this server does not"
                " have; all replicas need the same --state-key (TANDEM_STATE_KEY)",
                param=_PARAM,
            )

    def incoming(self, request: W) -> W:
        """The request with its state `verified`; one that has none passes as it is. Raises `BadRequest`."""
        state = getattr(request, "stream_state", None)
        if not isinstance(state, DerenderStreamState):
            return request
        verified = self.verified(state)
        return request if verified is state else request.model_copy(update={"stream_state": verified})

    def outgoing(self, answer: W) -> W:
        """The answer with its state `signed`; one that has none passes as it is."""
        state = getattr(answer, "stream_state", None)
        if not self.keys or not isinstance(state, DerenderStreamState):
            return answer
        return answer.model_copy(update={"stream_state": self.signed(state)})


def check_keys(setting: SecretStr) -> SecretStr:
    """For the setting's type: raises what `StateKeys.of` raises, when settings are read."""
    StateKeys.of(setting)
    return setting


def canonical(state: DerenderStreamState) -> bytes:
    """What is signed: all fields but the signature, as JSON with sorted keys, no white space, and all beyond ASCII escaped.

    So a client may decode the state and encode it again in its own language, with the fields in another order.
    """
    fields = state.model_dump(mode="json", exclude={"signature"})
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def signature(key: bytes, text: bytes) -> str:
    """HMAC-SHA256 of a `canonical` state, base64url without padding: 43 characters."""
    return urlsafe_b64encode(hmac.digest(key, _PURPOSE + text, sha256)).rstrip(b"=").decode()
