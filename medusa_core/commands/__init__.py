"""Subcommands, one a file: ``register(subparsers)`` adds the flags, ``run(args)`` does the work."""
