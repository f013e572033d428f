"""``python -m sglr_dataplane`` is the ``sglr`` command."""

import sys

from sglr_dataplane.cli import main

sys.exit(main())
