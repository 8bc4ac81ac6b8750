"""The parts of `make_samples.py`: a week of believable work, and the truth about it."""
