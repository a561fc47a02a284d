"""From a user's own model to heads that speed it up: self-distil, train, calibrate, measure.

``run`` does it by a plan and resumes where it was interrupted; ``timed`` within minutes, for the Train tab.
Both run the recipes, and what `medusa_core.evaluation` measures of their heads goes into a card (``report``).
"""
