"""python -m torch_mtl4.msl check|run|cost"""

import sys

from .cli import main

sys.exit(main())
