"""Subcommands, one a package, found by their names.

``register(subparsers)`` of the package adds the flags and names the function that does the work, as
"package.module:function". That module is imported when the command is run: the command line imports all
packages whenever it starts, so they import nothing slow.
"""
