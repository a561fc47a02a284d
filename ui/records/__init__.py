"""Frozen data of one visitor and of what the page ships, and the messages that views get of it.

Imports: acceptance, drafters, experiments, text, trace, trees.
"""
