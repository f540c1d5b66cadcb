"""Byte-level BPE's alphabet (GPT-2's way, and most models' since): each character of a token is one byte of the text."""


def _alphabet() -> dict[str, int]:
    # GPT-2's table: bytes that print stand for themselves, the 68 others for the characters from U+0100 on.
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


BYTE_OF = _alphabet()
CHARACTER_OF = {byte: character for character, byte in BYTE_OF.items()}
