//! Queries about a handle that another process may be using, with a time limit.
//!
//! The kernel makes one call at a time on an open file that is synchronous. While a child is inside
//! such a call, because its output is not read, a query for the kind of that file (`GetFileType`)
//! waits for the child (joyent/libuv#1313). A program that starts a second child with the same
//! stderr before it reads from either would wait too. So a separate thread makes the query, and it
//! alone waits if need be.

use std::os::windows::io::{AsHandle as _, AsRawHandle as _, BorrowedHandle};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::copy_of;
use crate::base::service_thread;

/// The time limit. An answer takes microseconds: after this, assume another thread is blocked on
/// the handle.
const TIME_LIMIT: Duration = Duration::from_secs(1);

/// Runs a query about a handle. `None`: it has not returned in time, or could not be started.
pub(crate) fn run<T: Send + 'static>(
    handle: BorrowedHandle<'_>,
    query: impl FnOnce(BorrowedHandle<'_>) -> T + Send + 'static,
) -> Option<T> {
    run_within(TIME_LIMIT, handle, query)
}

fn run_within<T: Send + 'static>(
    limit: Duration,
    handle: BorrowedHandle<'_>,
    query: impl FnOnce(BorrowedHandle<'_>) -> T + Send + 'static,
) -> Option<T> {
    // A duplicate: the caller may close its handle before the query returns.
    let copy = copy_of(handle.as_raw_handle(), false).ok()?;
    let (sender, receiver) = channel();
    let work = move || {
        let answer = query(copy.as_handle());
        drop(copy);
        // Ignored: the caller has stopped waiting.
        let _ = sender.send(answer);
    };
    service_thread::start(c"pipewright-ask", work).ok()?;
    receiver.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::handle::Handle;
    use crate::base::pipe::{Mode, PipeOptions, pair};

    #[test]
    fn a_query_returns_its_answer_or_gives_up_after_the_limit() {
        let null = crate::base::stdio::null().unwrap();
        assert_eq!(run(null.as_handle(), |_| 7), Some(7));
        let (end, ended) = channel::<()>();
        let never = move |_: BorrowedHandle<'_>| ended.recv().is_err();
        assert_eq!(run_within(Duration::from_millis(20), null.as_handle(), never), None);
        drop(end);
    }

    #[test]
    fn only_the_mode_of_foreign_ends_is_queried() {
        for read in [Mode::Sync, Mode::Async] {
            let (reader, writer) = pair(PipeOptions { read, ..PipeOptions::default() }).unwrap();
            let ours = Handle::from(reader);
            assert_eq!(ours.cached_is_overlapped(), (read == Mode::Sync).then_some(false));
            assert_eq!(ours.is_overlapped(), read == Mode::Async);
            let copy = ours.try_clone().unwrap();
            assert_eq!(copy.cached_is_overlapped(), Some(read == Mode::Async));
            let foreign = Handle::from(std::os::windows::io::OwnedHandle::from(copy));
            assert_eq!(
                (foreign.cached_is_overlapped(), foreign.is_overlapped()),
                (None, read == Mode::Async)
            );
            assert_eq!(Handle::from(writer).cached_is_overlapped(), Some(false));
        }
        assert_eq!(crate::base::stdio::null().unwrap().cached_is_overlapped(), Some(false));
    }
}
