"""The one error a user can cause: its text names the cause and the fix in one line."""


class MedusaError(ValueError):
    """Bad input or an unsupported situation. Shown as one line on the command line and in the app."""
