"""Schedules and layouts that are derived for processors."""
