"""Chapter 07: stop and ask."""
