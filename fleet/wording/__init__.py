"""The only code that words codes, numbers and times for people: for pages, the API and messages alike."""
