"""Many visitors on one machine: the runner, models, policy, HTTP guard; knows no component.

Imports: engine, evaluation, loading, records, trace.
"""
