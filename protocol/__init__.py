"""The wire between Tandem's services, and nothing else: pydantic types, server-sent events, errors.

OpenAI's field names, and vLLM's where its scale-out API (`/render`, `/inference/v1/generate`, `/derender`) adds some.
This package imports no other folder of the project, knows no HTTP framework, no tokenizer and no grammar.
"""
