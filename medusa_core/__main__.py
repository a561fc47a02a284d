"""``python -m medusa_core``."""

import sys

from medusa_core.cli.main import main

sys.exit(main())
