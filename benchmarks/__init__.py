import os

os.environ["STATEANALYTICS_CACHE"] = "off"  # a second read of the same would be of the cache
