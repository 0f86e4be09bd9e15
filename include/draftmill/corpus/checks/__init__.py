"""Checks of a finished corpus, from its files alone and by the trainers' own loaders."""
