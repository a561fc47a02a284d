"""Pictures made from plain records. Nothing here imports torch or the engine.

Imports: drafters, experiments, hardware, trace, trees.
"""
