"""Training: corpus and tokenizer, the shared loop, and one file a recipe."""
