"""The commands: one a file; `main` dispatches and turns exceptions into text."""
