"""Measurements of methods, heads and decoding steps.

Imports: engine, drafters, trees, config, errors.
"""
