"""One file or folder per tab, with the tab's own work beside it; each has `build(...)`.

Imports: checkpoints, components, drafters, engine, evaluation, experiments, figures, hardware, model,
records, runs, serving, trace, training, trees.
"""
