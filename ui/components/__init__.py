"""Gradio components of the page.

Imports: acceptance, drafters, records, trace.
"""
