"""Chapter 01: a model you can script."""
