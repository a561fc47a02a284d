"""Medusa inside transformers' own generate, and the export of it as a folder.

Imports: decoding, drafters, acceptance, target, checkpoints, trees, errors.
"""
