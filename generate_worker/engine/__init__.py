"""Engines: one interface (`base`), and two that speak it, `torch_engine` and `replay_engine`.

`job` and `sequence` keep what is true of every engine: which token stops a choice, how it is counted, timed and told. Torch is
imported by `torch_engine` and what it is made of, so that the replay engine runs where torch is not installed.
"""
