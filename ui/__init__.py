"""The page: Gradio tabs, figures and the linked view. What a press asks of an engine stands in `ui.runs`."""
