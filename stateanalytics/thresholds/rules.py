"""What a verdict on a threshold is decided by: its names, and the bounds."""

VERDICTS = {
    "change": "another value costs less, beyond noise and whichever unit is left out",
    "choose": "no value is set; this one is the cheapest",
    "keep": "no other value can save much: that is known, not merely not refuted",
    "cannot_tell": "others cost as much or less, as far as so few units can say",
    "not_identified": "what lies beyond was closed by a limit or an observer before it was seen",
    "not_enough_data": "too few sessions, or too few deaths to weigh the delay",
}
FEWEST_AT_RISK = 10
"""Nothing is recommended where fewer units were still under observation."""
FEWEST_HIT = 5
"""Units with a mistake that it takes to see how many of them come together."""
NEAR = 0.05
"""Of values that cannot be told apart, those so much dearer than the cheapest may be taken."""
MUCH, MUCH_PER_HUNDRED = 0.5, 1.0
"""What could be saved is little below this share of today's loss, or so many mistakes."""
CLOSED = 2.0
"""A value is beyond a limit where one unit stands for so many, the others having been closed."""
ALIKE = 1e-9
"""Losses so close, in relation, are ties within rounding."""
