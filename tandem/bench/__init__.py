"""`tandem bench`: load for a worker, for the per-chunk pipeline, or for any OpenAI address, and what came of it.

Pure in the middle (`scenarios`, `schedule`, `measure`, `summary`), with I/O at the edges (`targets`, `load`, `files`, `plots`).
"""
