//! SIGKILL of a runner at any moment: everything that was reported durable is in the log.

use super::*;

pub(super) fn run_until_killed(_log: &Path) {}
