"""Frozen data of one visitor, and of what the page ships.

Imports: acceptance, drafters, experiments, text, trace, trees.
"""
