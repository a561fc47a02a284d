"""Programs that made what the repository holds; neither the engine nor the page uses them."""
