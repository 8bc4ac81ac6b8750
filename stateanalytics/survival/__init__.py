"""How long work takes, and how honestly that can be said."""
