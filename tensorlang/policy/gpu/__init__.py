"""Schedules and layouts that are derived for graphics processors."""
