"""Measurements of methods, heads and decoding steps.

Imports: acceptance, checkpoints, decoding, drafters, engine, summary, target, text, trees.
"""
