//! The error of a run that did not succeed.

use std::ffi::OsStr;

use super::Captured;
use crate::error::{Error, ErrorKind, FailedOperation};

/// The most bytes of each stream that an error carries.
pub(crate) const TAIL_BYTES: usize = 64 << 10;

/// A captured stream. Only the types that this crate captures streams in implement it.
pub(crate) trait CapturedStream: Sized {
    /// Returns its end, as text.
    fn tail(&self) -> String;
}

impl CapturedStream for Vec<u8> {
    fn tail(&self) -> String {
        let from = self.len().saturating_sub(TAIL_BYTES);
        String::from_utf8_lossy(self.get(from..).unwrap_or_default()).into_owned()
    }
}

impl CapturedStream for String {
    fn tail(&self) -> String {
        let mut from = self.len().saturating_sub(TAIL_BYTES);
        while !self.is_char_boundary(from) {
            from += 1;
        }
        self.get(from..).unwrap_or_default().to_owned()
    }
}

impl CapturedStream for () {
    fn tail(&self) -> String {
        String::new()
    }
}

#[expect(private_bounds, reason = "for bytes, text and nothing, and for no other type")]
impl<T: CapturedStream> Captured<T> {
    /// Returns `self` if the child exited by itself with code 0, and otherwise the error that
    /// [`Command::run`](crate::Command::run) and [`Command::read`](crate::Command::read) return.
    ///
    /// # Errors
    /// [`ErrorKind::Failed`], with the outcome, the limit that was exceeded and the end of each captured stream. The
    /// error prints the last line of stderr, or of the [merged](crate::Command::merge_stderr) output. If the run was
    /// stopped and stderr is empty, the error prints the last line of stdout.
    /// Also fails if a tee could not write to its target, unless the reader of that target is gone.
    ///
    /// ```
    /// use pipewright::{Command, ErrorKind};
    /// use std::time::Duration;
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "echo so far; sleep 60"]).timeout(Duration::from_millis(200));
    /// let error = command.capture()?.check().unwrap_err();
    /// assert_eq!(error.to_string(), r#""sh" failed: timed out after 200ms: so far"#);
    /// let ErrorKind::Failed { stdout_tail, .. } = error.kind() else { panic!() };
    /// assert_eq!(stdout_tail, "so far\n");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "error_for_status")]
    #[doc(alias = "exit_ok")]
    pub fn check(self) -> Result<Captured<T>, Error> {
        check_success(&self.program, &self)?;
        Ok(self)
    }
}

/// Returns an error of this program if the run did not succeed.
pub(crate) fn check_success<T: CapturedStream>(
    program: &OsStr,
    ended: &Captured<T>,
) -> Result<(), Error> {
    if ended.success() {
        return check_tee(program, ended);
    }
    let stdout_tail = ended.stdout.tail();
    let stderr_tail = match ended.stderr.tail() {
        tail if tail.is_empty() && ended.stderr_merged => stdout_tail.clone(),
        tail => tail,
    };
    let kind = ErrorKind::Failed {
        status: ended.status,
        outcome: ended.outcome,
        exceeded: ended.exceeded,
        stdout_tail,
        stderr_tail,
    };
    Err(Error::new(program, FailedOperation::Run, kind, None))
}

/// Returns the error of a failed tee, for verbs that cannot report it in their result. A reader that is gone wants no
/// more output, so that is not a failure.
pub(crate) fn check_tee<T>(program: &OsStr, ended: &Captured<T>) -> Result<(), Error> {
    match ended.tee_failed.filter(|failed| !failed.is_reader_gone()) {
        Some(failed) => Err(Error::cannot(program, "forward the output of", failed.to_error())),
        None => Ok(()),
    }
}
