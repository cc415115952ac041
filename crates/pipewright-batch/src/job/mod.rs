//! Jobs: what to run, their identity, and templates of commands.
