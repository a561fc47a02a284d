"""The linked view of a run without a server: scripts, colours, and one HTML file that replays it."""
