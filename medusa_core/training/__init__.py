"""Training: text and its tokens, the shared loop, and one file a recipe.

Imports: acceptance, checkpoints, drafters, engine, evaluation, loading, model, text.
"""
