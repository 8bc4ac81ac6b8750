"""``python -m stateanalytics``: the same as the command ``stateanalytics``."""

from stateanalytics.cli import main

if __name__ == "__main__":
    main()
