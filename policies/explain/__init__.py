"""Why a job waits: what binds it, and one change that is solved and helps."""
