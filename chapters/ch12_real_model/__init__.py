"""Chapter 12: a real model, a real page."""
