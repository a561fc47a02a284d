"""Frozen data of one visitor, and of what the page ships.

Imports: options, text, trace_format, trees.
"""
