"""What spark-submit runs: `spark-submit …/terrazzo/cli/submit.py ingest ARRAY SOURCE…` is `terrazzo ingest --spark`."""

import sys

from terrazzo.cli.main import main

if __name__ == "__main__":
    main([*sys.argv[1:], "--spark"])
