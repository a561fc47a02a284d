"""The Train tab: its page, its runs, its downloads."""
