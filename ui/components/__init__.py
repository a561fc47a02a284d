"""Gradio components of the page and the messages they take.

Imports: figures, records; never the session.
"""
