"""The text of a stream: what has come, and how much of it has been delivered."""


class Transcript:
    """Made of deltas as they came. Segments are found in it again, in their order, so that it can tell where the last one ended.
    Work is linear in the text."""

    def __init__(self) -> None:
        self._past: list[str] = []
        self._window = ""
        self._delivered = 0  # of the window
        self._new: list[str] = []

    def add(self, delta: str) -> None:
        self._new.append(delta)

    def deliver(self, segment: str) -> None:
        """Raises `ValueError` for a segment that is not in the text behind the one before."""
        if self._new:
            self._past.append(self._window[: self._delivered])
            self._window = "".join((self._window[self._delivered :], *self._new))
            self._delivered = 0
            self._new.clear()
        found = self._window.find(segment, self._delivered)
        if found < 0:
            raise ValueError(f"the chunking strategy gave a segment that is not in the text: {segment[:80]!r}")
        self._delivered = found + len(segment)

    @property
    def whole(self) -> str:
        return "".join((*self._past, self._window, *self._new))

    @property
    def delivered(self) -> str:
        """Through the end of the last segment, with what stands between segments."""
        return "".join((*self._past, self._window[: self._delivered]))
