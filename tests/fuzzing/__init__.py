"""Random programs, schedules, models and files, each tried in a process of its own: `scripts/fuzz.py` runs them."""
