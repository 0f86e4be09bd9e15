"""Detached jobs on the host: started once, found again by their key, stopped in order."""
