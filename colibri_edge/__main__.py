"""`python -m colibri_edge` is the command `colibri-edge`."""
import sys

from colibri_edge.apps.cli import main

if __name__ == "__main__":
    sys.exit(main())
