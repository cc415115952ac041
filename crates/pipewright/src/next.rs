//! The answer of a wait that has a limit.

/// What a wait with a limit brought: the next item, nothing yet, or the end.
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
    /// The limit has passed, and there is no item yet.
    Pending,
    /// No item is left to wait for.
    Done,
}

impl<T> Next<T> {
    /// Returns the item; `None` where there is none yet, or none is left.
    #[must_use]
    pub fn item(self) -> Option<T> {
        match self {
            Next::Item(item) => Some(item),
            Next::Pending | Next::Done => None,
        }
    }
}
