//! The result of a wait with a limit.

use std::task::{Poll, ready};
use std::time::Instant;

use crate::error::Error;

/// The result of a wait with a limit: an item, nothing yet, or the end.
///
/// ```
/// use pipewright::{Command, Next};
/// use std::time::Duration;
///
/// let mut lines = Command::new("sh").args(["-c", "sleep 0.1; echo done"]).lines()?;
/// let mut ticks = 0;
/// loop {
///     match lines.next_within(Duration::from_millis(10)) {
///         Next::Item(line) => assert_eq!(line?.text, "done"),
///         Next::Pending => ticks += 1, // Draw something, then wait again.
///         Next::Done => break,
///     }
/// }
/// assert!(ticks > 0);
/// # Ok::<(), pipewright::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next<T> {
    /// The next item.
    Item(T),
    /// The limit passed without an item.
    Pending,
    /// The end: no items are left.
    Done,
}

impl<T> Next<T> {
    /// Returns the item, or `None` if there is none yet or none is left.
    #[must_use]
    pub fn item(self) -> Option<T> {
        match self {
            Next::Item(item) => Some(item),
            Next::Pending | Next::Done => None,
        }
    }
}

/// Polls for the next item of a run, but no longer than `until`: takes what is there, and otherwise steps.
pub(crate) fn poll_next_by<S, T>(
    stream: &mut S,
    until: Option<Instant>,
    mut take: impl FnMut(&mut S) -> Option<Result<T, Error>>,
    mut step: impl FnMut(&mut S) -> Poll<Result<bool, Error>>,
) -> Poll<Next<Result<T, Error>>> {
    let mut limit_passed = false;
    loop {
        if let Some(item) = take(stream) {
            return Poll::Ready(Next::Item(item));
        }
        if limit_passed {
            return Poll::Ready(Next::Pending);
        }
        match ready!(step(stream)) {
            Ok(true) => limit_passed = until.is_some_and(|until| Instant::now() >= until),
            Ok(false) => return Poll::Ready(Next::Done),
            Err(error) => return Poll::Ready(Next::Item(Err(error))),
        }
    }
}
