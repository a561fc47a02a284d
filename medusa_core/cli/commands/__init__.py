"""What the subcommands do, one a file, imported when it is run. Their flags are in ``flags``."""
