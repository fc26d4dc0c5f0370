"""The leaderboard: every hasher on every data set, code length, seed and protocol."""
