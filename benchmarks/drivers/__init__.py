"""One small driver per library, each run in that library's own virtual environment."""
