"""The forward in C: its source, the compiling of it for this machine, and its structures for Python."""
