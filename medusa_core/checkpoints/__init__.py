"""Names and layouts of weight files, in and out; builds nothing that runs.

Imports: trees.
"""
