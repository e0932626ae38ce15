"""Chapter 11: several agents."""
