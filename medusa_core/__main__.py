"""``python -m medusa_core``."""

import sys

from medusa_core.cli import main

sys.exit(main())
