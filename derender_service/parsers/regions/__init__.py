"""The kinds of regions that grammars are made of: how each reads text, markers, and the end of the output.

A region never sees HTTP or a model's name: it is declared with the steps out of it, and works on a `Run`.
"""

from derender_service.parsers.regions.base import Region
from derender_service.parsers.regions.calls import Body, Calls, Delimited, NamedBody
from derender_service.parsers.regions.names import Label, Name
from derender_service.parsers.regions.parameters import Between, Dropped, Key, Value
from derender_service.parsers.regions.text import Channel, Gap, Peek

__all__ = [
    "Between", "Body", "Calls", "Channel", "Delimited", "Dropped", "Gap", "Key", "Label", "Name", "NamedBody", "Peek", "Region",
    "Value",
]  # fmt: skip
