"""The paper's experiments, the leaderboard and capacity planning."""
