"""The SGLang server on the host: one owner, many users, verified at both ends."""
