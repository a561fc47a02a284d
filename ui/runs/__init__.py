"""What one press of a button does with an engine, as a stream of records.

Imports: decoding, drafters, engine, evaluation, records, serving, text, trace.
"""
