"""The subcommands, one a file, found by their names.

``register(subparsers)`` adds the flags and names the function that does the work: "package.module:function".
All of them are imported whenever the command line starts, so they import nothing slow: what a command needs
beyond that is imported where it is used, and a long one does its work in a module beside this folder.
"""
