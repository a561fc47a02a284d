"""Measurements of methods, heads and decoding steps.

Imports: acceptance, checkpoints, decoding, drafters, engine, hardware, llama, loading, model, text, trees.
"""
