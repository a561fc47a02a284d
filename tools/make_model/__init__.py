"""Pretrain the embedded model and its draft model from scratch; their cards hold the commands."""
