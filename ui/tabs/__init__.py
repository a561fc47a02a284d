"""One tab a file, each with `build(session, chosen)`."""
