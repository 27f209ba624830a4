"""What spark-submit runs: `spark-submit …/terrazzo/cli/submit.py ingest ARRAY SOURCE…` is `terrazzo ingest --spark`."""

import os
import sys

if __name__ == "__main__":
    # A script's own folder comes first on the path, and `inspect` of this one would be taken for Python's.
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != here]  # noqa: PTH100

    from terrazzo.cli.main import main

    main([*sys.argv[1:], "--spark"])
