"""What stands inside a call: incremental readers, resumable at any character. A reader's fields are its whole state: plain JSON."""
