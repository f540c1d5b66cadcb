"""Reasoning and tool-call formats: what a model writes, read piece by piece into reasoning, content and calls.

`families/` declares each format as data; `grammar` puts a reasoning and a tool format together; `driver` runs any grammar;
`codecs/` read what stands inside a call. `docs/parsers.md` walks through one.
"""
