"""The generate worker: token ids in, token ids out. It has no tokenizer, and torch lives in this package only.

`app` is the HTTP service; `engine` makes the tokens. Requests flow one way: `routes` -> `admission` -> an engine -> `event_stream`.
"""
