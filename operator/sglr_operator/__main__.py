"""``python -m sglr_operator``."""

import sys

from sglr_operator.cli import main

sys.exit(main())
