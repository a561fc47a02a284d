"""Frozen data about one visitor and about what the page ships, and the messages that views are sent.

Imports: acceptance, drafters, experiments, text, trace, trees.
"""
