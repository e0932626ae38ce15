"""Chapter 03: a function the model may call."""
