//! The output of a command that the caller waits for in steps.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::output::Output;
use crate::run::{RunHandle, Steps, StepsDescriptor};

/// The output of a running command or pipeline, which the caller waits for in steps, from
/// [`Command::start_output`](crate::Command::start_output).
///
/// It is for programs that have to do something else between two waits, such as to look for signals, and for event loops
/// other than tokio. The command's timeouts, limits and cancel token apply while you wait.
///
/// ```
/// use pipewright::Command;
/// use std::time::Duration;
/// let mut running = Command::new("sh").args(["-c", "sleep 0.1; echo done"]).start_output()?;
/// let output = loop {
///     if let Some(output) = running.wait_for(Duration::from_millis(20))? {
///         break output;
///     }
/// };
/// assert_eq!(output.stdout, b"done\n");
/// # Ok::<(), pipewright::Error>(())
/// ```
///
/// # Drop
/// As for [`Events`](crate::Events).
#[derive(Debug)]
pub struct RunningOutput {
    /// Declared before the run, so dropped first: it waits for the run's handles.
    descriptor: StepsDescriptor,
    steps: Steps,
}

impl RunningOutput {
    pub(crate) fn new(steps: Steps) -> RunningOutput {
        RunningOutput { descriptor: StepsDescriptor::default(), steps }
    }

    /// Returns the process id; of a pipeline, that of the first stage.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.steps.pid()
    }

    /// Returns a handle to the processes, for other threads.
    #[must_use]
    pub fn handle(&self) -> RunHandle {
        self.steps.handle()
    }

    /// Waits for the end of the command, for at most `limit`; zero only does what can be done at once. Returns `None` if
    /// the command has not ended by then.
    ///
    /// # Errors
    /// The command could not be read from or waited for, and no longer runs; or its result has been returned before.
    pub fn wait_for(&mut self, limit: Duration) -> Result<Option<Output>, Error> {
        // A limit too long for the clock means no limit.
        let until = Instant::now().checked_add(limit);
        loop {
            let is_over = !self.steps.step_until(until)?;
            if is_over || (self.steps.have_children_ended() && !self.steps.step_until(until)?) {
                let output = self.steps.output();
                return output.unwrap_or_else(|| Err(self.steps.already_reported())).map(Some);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(None);
            }
        }
    }

    /// Returns a copy of the stdout and the stderr that have been captured so far.
    pub fn so_far(&mut self) -> [Vec<u8>; 2] {
        self.steps.so_far()
    }

    /// Returns a descriptor that becomes readable when [`wait_for`](Self::wait_for) with a limit of zero has something to
    /// do. The number stays the same. After each such call, call this again before the next wait for the descriptor.
    ///
    /// # Platform
    /// Linux: an `epoll`. Other systems: `Unsupported`.
    ///
    /// # Errors
    /// No more handles are available.
    pub fn wait_descriptor(&mut self) -> Result<i32, Error> {
        self.steps.update_descriptor(&mut self.descriptor)
    }
}
