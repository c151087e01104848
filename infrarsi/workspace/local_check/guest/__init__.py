"""Guest code of the local check: run in the user's processes, never imported by the program."""
