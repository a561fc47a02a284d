"""One tab a file or folder, its own work beside it, each with `build(...)`.

Imports: checkpoints, components, drafters, engine, evaluation, experiments, figures, hardware, model,
records, runs, serving, trace, training, trees.
"""
