"""The page: Gradio tabs, figures and the linked view. Only `ui.session` talks to the engine."""
