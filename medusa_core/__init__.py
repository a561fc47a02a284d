"""Medusa decoding: extra heads draft a tree of tokens, one forward pass verifies it.

The engine of the project; it never imports the user interface. Start reading at ``decoding.py``.
"""
