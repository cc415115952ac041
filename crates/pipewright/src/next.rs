//! The result of a wait with a limit.

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
