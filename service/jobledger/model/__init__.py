"""Values and folds: what an event is, and what a job is after it. No IO, no clock, no setting."""
