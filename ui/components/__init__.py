"""Gradio components of the page and the messages they take.

Imports: acceptance, drafters, records, trace.
"""
