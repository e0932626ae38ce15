"""Chapter 04: the loop."""
