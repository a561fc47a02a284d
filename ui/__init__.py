"""The page: Gradio tabs, figures and the linked view. What a press asks of an engine is in `ui.runs`."""
