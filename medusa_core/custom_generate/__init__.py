"""Medusa inside transformers' own generate, and the export of it as a folder.

Imports: acceptance, checkpoints, decoding, drafters, model, trees.
"""
