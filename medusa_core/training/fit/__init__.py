"""From a user's own model to heads that speed it up: self-distil, train, calibrate, measure."""
