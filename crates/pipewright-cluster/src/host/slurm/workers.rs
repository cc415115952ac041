//! The commands that have started workers, and the nodes that lack one.

use std::collections::HashMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use pipewright::{Child, Command, Contain, Scope, Stdio};

use crate::slurm::SlurmError;

/// The time without a worker after which one is started again on its node.
const MISSING: Duration = Duration::from_secs(10);

/// Commands that have started workers.
#[derive(Debug, Default)]
pub(super) struct Workers {
    children: Vec<Child>,
    /// The time since which a node has no worker, and the pause before the next try.
    missing: HashMap<String, (Instant, Duration)>,
}

impl Workers {
    /// Starts a command.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(&mut self, words: Vec<OsString>) -> Result<(), SlurmError> {
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        let child = command
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .own_session()
            .contain(Contain::Tree)
            .kill_on_parent_exit(Scope::Tree)
            .spawn()
            .map_err(SlurmError::Start)?;
        // Those that have ended are reaped by this.
        self.children.retain(|child| !matches!(child.try_wait(), Ok(Some(_))));
        self.children.push(child);
        Ok(())
    }

    /// Returns the nodes that have had no worker for some time, and longer after each try.
    pub(super) fn missing(&mut self, nodes: &[String], connected: &[String]) -> Vec<String> {
        let now = Instant::now();
        self.missing.retain(|node, _| !connected.contains(node));
        let lacking = nodes.iter().filter(|node| !connected.contains(node));
        lacking
            .filter(|node| {
                let (since, pause) = self.missing.entry((*node).clone()).or_insert((now, MISSING));
                let is_due = now.duration_since(*since) >= *pause;
                if is_due {
                    (*since, *pause) = (now, pause.saturating_mul(2).min(MISSING * 12));
                }
                is_due
            })
            .cloned()
            .collect()
    }
}
