"""The commands of the command line, a module each: options, and what they lead to. Heavy imports stand inside the functions."""
