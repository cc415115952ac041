//! The log: intents and ends of jobs in a SQLite database, with group commit.
