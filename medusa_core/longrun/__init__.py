"""Texts of many thousand tokens: decoded in segments, kept on disk as they grow, resumed after any end.

Imports: acceptance, decoding, drafters, engine, loading, text, training, trees.
"""
