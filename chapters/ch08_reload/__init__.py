"""Chapter 08: what a reload must show."""
