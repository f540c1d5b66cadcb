"""What a Python user imports: answers of a gateway, or of the three services, as streams that clean up after themselves."""

from protocol.event_stream import EventStream, StreamProtocolError
from tandem.checks import Check, CheckFailure, CheckResult, FinalCheck, Verdict
from tandem.chunking import Chunker, ChunkingStrategy, Paragraphs, Sentences, Words
from tandem.errors import AlreadyConsumed, ConnectionFailed, GenerationFailed, RequestRefused, StreamError
from tandem.events import (
    CheckEvent,
    CompletedEvent,
    DoneEvent,
    ErrorEvent,
    ReasoningEvent,
    StreamEvent,
    TextEvent,
    ToolCall,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from tandem.streamer import Streamer, stream
from tandem.sync import SyncStreamer, stream_sync
from tandem.targets import Gateway, Pipeline

__all__ = [
    "AlreadyConsumed",
    "Check",
    "CheckEvent",
    "CheckFailure",
    "CheckResult",
    "Chunker",
    "ChunkingStrategy",
    "CompletedEvent",
    "ConnectionFailed",
    "DoneEvent",
    "ErrorEvent",
    "EventStream",
    "FinalCheck",
    "Gateway",
    "GenerationFailed",
    "Paragraphs",
    "Pipeline",
    "ReasoningEvent",
    "RequestRefused",
    "Sentences",
    "StreamError",
    "StreamEvent",
    "StreamProtocolError",
    "Streamer",
    "SyncStreamer",
    "TextEvent",
    "ToolCall",
    "ToolCallArguments",
    "ToolCallEnd",
    "ToolCallStart",
    "Verdict",
    "Words",
    "stream",
    "stream_sync",
]
