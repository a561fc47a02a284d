"""Prompts that come in and tokens that become text; pure functions.

Imports: no other room.
"""
