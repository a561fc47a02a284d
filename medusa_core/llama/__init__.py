"""Llama-like models on any CPU: one C, readable in a sitting, and the Python beside it.

``model.h`` says how a forward is computed and why a row has the same bits in a batch of any size.
Imports: hardware, model, trees.
"""
