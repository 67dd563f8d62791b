"""Schedules of the library that are written for roles of equations: which equations have one, and what its parameters are then."""
