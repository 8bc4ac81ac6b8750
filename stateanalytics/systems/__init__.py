"""One folder a system: how its stores are read, and what its words mean."""
