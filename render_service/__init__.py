"""Render: an OpenAI request in, prompt token ids out. Stateless, and free of torch."""
