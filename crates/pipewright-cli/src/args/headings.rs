//! Groups of options in the help of `run`, `pipe` and `batch`.

/// Conditions that stop a command.
pub(super) const LIMITS: &str = "Limits";
/// Conditions that start a command again.
pub(super) const RETRIES: &str = "Retries";
/// The way a command is stopped, and the processes that this reaches.
pub(super) const STOPPING: &str = "Stopping";
/// Destinations of stdout and stderr.
pub(super) const OUTPUT: &str = "Output";
/// Everything that the command starts with.
pub(super) const ENVIRONMENT: &str = "Environment";
/// Results for people, scripts and shells.
pub(super) const REPORTING: &str = "Reporting";
/// The jobs of a batch.
pub(super) const INPUT: &str = "Input";
/// The number of jobs at once, and their attempts.
pub(super) const RUNNING: &str = "Running";
/// The machines that run a batch.
pub(super) const NODES: &str = "Nodes";
/// The log of a batch.
pub(super) const LOG: &str = "Log";
/// The jobs that `jobs` lists.
pub(super) const LISTING: &str = "Listing";
