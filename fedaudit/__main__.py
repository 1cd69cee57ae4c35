"""`python -m fedaudit` is the command `fedaudit`; torchrun starts it by this name.

`-m` puts the working directory first on Python's path. It is taken off again before anything else is imported,
since whoever reads a received folder may stand in it.
"""

import os
import sys

if __name__ == "__main__":
    if sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    from fedaudit.audit.cli.main import main

    main()
