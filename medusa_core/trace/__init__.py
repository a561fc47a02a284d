"""The trace of a run: its records built from steps, its file format, and the reader of files old and new.

Imports: acceptance, decoding, drafters, engine, model, trees.
"""
