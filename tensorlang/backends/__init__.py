"""Back ends: a folder for each target, one protocol for all, and the table of who answers to which name."""
