"""gpt-oss' format: messages, each with a header that says what its body is."""
