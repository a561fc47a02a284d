"""The command line: flags from settings records, progress lines, one command a file in commands.

Imports: acceptance, checkpoints, custom_generate, decoding, drafters, engine, evaluation, experiments,
hardware, loading, longrun, text, trace, training, trees.
"""
