"""Position-keyed randomness: the noise for a token depends on (seed, choice, position, token id) and on nothing else.

A counter-based generator (SplitMix64's finaliser over a keyed counter) in integer arithmetic: the same bits on every device, in
every batch, for any subset of the token ids. So a result depends neither on who shared the batch nor on which worker resumed it.
"""

import torch

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX1, _MIX2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def stream_key(seed: int, choice: int, position: int) -> int:
    """A signed 64-bit key of one draw. `position` counts all ids before the token, prompt included."""
    key = _finalise((seed & _MASK) + _GOLDEN)
    key = _finalise(key ^ (choice + _GOLDEN))
    key = _finalise(key ^ ((position + 1) * _GOLDEN & _MASK))
    return _signed(key)


def gumbel(keys: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise, float32. `keys`: int64 [batch, 1]; `token_ids`: int64 [n] or [batch, n]; result: [batch, n]."""
    x = token_ids * _signed(_GOLDEN) + keys
    _shift_xor(x, 30)
    x *= _signed(_MIX1)
    _shift_xor(x, 27)
    x *= _signed(_MIX2)
    _shift_xor(x, 31)
    # The top 32 bits as a uniform number in (0, 1). Small values keep their full resolution in float32, and these are the ones that
    # win; the clamp keeps a value that rounds to 1 from becoming minus infinity.
    u = ((x >> 32) & 0xFFFFFFFF).to(torch.float32).add_(0.5).mul_(2.0**-32).clamp_(max=1.0 - 2.0**-24)
    return u.neg_().log1p_().neg_().log_().neg_()


def _shift_xor(x: torch.Tensor, bits: int) -> None:
    # `>>` is arithmetic for int64; the mask makes it logical.
    x ^= (x >> bits) & ((1 << (64 - bits)) - 1)


def _finalise(x: int) -> int:
    x &= _MASK
    x = (x ^ (x >> 30)) * _MIX1 & _MASK
    x = (x ^ (x >> 27)) * _MIX2 & _MASK
    return x ^ (x >> 31)


def _signed(x: int) -> int:
    return x - 2**64 if x >= 2**63 else x
