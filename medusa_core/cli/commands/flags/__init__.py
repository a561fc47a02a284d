"""The flags of the subcommands, one a file, found by their names.

``register(subparsers)`` adds the flags and names the function that does the work: "package.module:function".
All of them are imported whenever the command line starts, so they import nothing slow.
"""
