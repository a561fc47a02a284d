"""The verified model with its KV cache and its attention masks.

Imports: trees.
"""
