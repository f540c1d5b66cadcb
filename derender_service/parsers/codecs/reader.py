"""What the codecs that read calls have in common."""

from typing import Protocol

from derender_service.parsers.events import Event


class Reader(Protocol):
    """Reads the inside of a call, or of several. Its fields are plain JSON and its whole state."""

    started: bool
    """Whether a call has come of what is being read: its name is known."""
    raw: str
    """While none has: the text that is content if none does."""
    refused: bool
    """This is no call. `raw` is all that was read."""
    done: bool
    """The last character belonged to it; the next does not."""

    @property
    def quoted(self) -> bool:
        """Whether the next character stands within a string, where nothing is markup."""

    def take(self, text: str, at: int, stops: str = "") -> tuple[list[Event], int]:
        """The events of the text from `at` on, and where reading stopped: at the end (`done`, `refused`), at the end of the
        text, or outside of strings at a character of `stops` or one that cannot stand there."""

    def skip(self, text: str, at: int) -> int:
        """Reads over a character that `take` stopped at and that turned out to be no markup: returns the place after it, or `at`
        where reading on as if it were text is right, or refuses."""

    def finish(self) -> list[Event]:
        """What is due where the call is cut off: it ends as it stands."""
