"""The command line: flags from settings records, progress lines, one command a file in commands.

Imports: everything in medusa_core.
"""
