"""The model's line above the tabs and its menu."""
