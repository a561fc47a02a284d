"""Frozen data of one visitor, and of what the page ships.

Imports: medusa_core's light records.
"""
