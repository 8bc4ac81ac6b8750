import os

os.environ["STATEANALYTICS_CACHE"] = "off"  # tests of the cache name a folder of their own
