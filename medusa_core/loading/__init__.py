"""From names to a running engine: where weights go, how much memory they take, how they are read.

Imports: checkpoints, drafters, engine, hardware, llama, model.
"""
