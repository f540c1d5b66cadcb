"""Token ids in, OpenAI answers out. Stateless: what a stream needs to go on travels with it."""
