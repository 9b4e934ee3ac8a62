"""A large fleet with a plausible past, for measurements, tests of pages and screenshots.

Short stories are played through the product's own operations and taken back again; what they wrote is the pattern
(`pattern`), of which thousands of copies with other names, times and ids go into the tables by COPY (`fill`).
"""
