"""What stands in a message for what varies, while it is worked on and when it is shown."""

# A placeholder stands between the first two of these characters of the private use area
# while a message is worked on; the others stand for what was kept, and for a name with a
# number, until they are put back. No message can hold them: they are removed first.
OPEN, CLOSE, KEPT_HERE, NUMBERED_HERE = "\ue000", "\ue001", "\ue002", "\ue003"

#: How a placeholder without a kind is shown.
WILDCARD = "<*>"
