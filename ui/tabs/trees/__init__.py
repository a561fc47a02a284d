"""The Trees tab: its page, its measurements."""
