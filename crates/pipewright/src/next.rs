//! The answer of a wait that has a limit.

/// What a wait with a limit brought: the next item, nothing yet, or the end.
///
/// ```
/// use pipewright::{Command, Next, Runner};
/// use std::time::Duration;
///
/// let mut runner = Runner::new(1);
/// runner.push("greet", Command::new("echo").arg("hi").owned());
/// loop {
///     match runner.next_within(Duration::from_millis(50)) {
///         Next::Item((key, result)) => assert_eq!((key, result?.stdout.as_str()), ("greet", "hi\n")),
///         Next::Pending => {} // Look at something else, then wait again.
///         Next::Done => break,
///     }
/// }
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
