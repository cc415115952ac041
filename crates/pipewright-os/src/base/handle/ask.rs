//! Questions about a handle that others may be using, and no wait for those.
//!
//! The kernel makes one call at a time on an open file that is synchronous. While a child is inside of one,
//! because nobody reads what it writes, whoever asks what kind of file that is (`GetFileType`) waits
//! for the child (joyent/libuv#1313): so would a program that starts a second child with the same stderr,
//! before it reads from either. So a thread asks, and if need be it is the one who waits.

use std::os::windows::io::{AsHandle as _, AsRawHandle as _, BorrowedHandle};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::copy_of;
use crate::base::service_thread;

/// An answer takes microseconds. Whoever has not got one after this is waited for by others, not busy.
const LONGEST: Duration = Duration::from_secs(1);

/// The answer; `None`: there is none yet, or nobody could ask.
pub(crate) fn about<T: Send + 'static>(
    handle: BorrowedHandle<'_>,
    question: impl FnOnce(BorrowedHandle<'_>) -> T + Send + 'static,
) -> Option<T> {
    within(LONGEST, handle, question)
}

fn within<T: Send + 'static>(
    longest: Duration,
    handle: BorrowedHandle<'_>,
    question: impl FnOnce(BorrowedHandle<'_>) -> T + Send + 'static,
) -> Option<T> {
    // One of its own: the other may be closed before there is an answer.
    let copy = copy_of(handle.as_raw_handle(), false).ok()?;
    let (tell, told) = channel();
    let work = move || {
        let answer = question(copy.as_handle());
        drop(copy);
        // Ignored: nobody waits for it any more.
        let _ = tell.send(answer);
    };
    service_thread::start(c"pipewright-ask", work).ok()?;
    told.recv_timeout(longest).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::handle::Handle;
    use crate::base::pipe::{Mode, PipeOptions, pair};

    #[test]
    fn an_answer_is_given_and_one_that_does_not_come_is_not_waited_for() {
        let null = crate::base::stdio::null().unwrap();
        assert_eq!(about(null.as_handle(), |_| 7), Some(7));
        let (end, ended) = channel::<()>();
        let never = move |_: BorrowedHandle<'_>| ended.recv().is_err();
        assert_eq!(within(Duration::from_millis(20), null.as_handle(), never), None);
        drop(end);
    }

    #[test]
    fn what_this_crate_has_made_is_known_and_whatever_else_is_asked() {
        for read in [Mode::Sync, Mode::Async] {
            let (reader, writer) = pair(PipeOptions { read, ..PipeOptions::default() }).unwrap();
            let ours = Handle::from(reader);
            assert_eq!(ours.overlaps_as_known(), (read == Mode::Sync).then_some(false));
            assert_eq!(ours.overlaps(), read == Mode::Async);
            let copy = ours.try_clone().unwrap();
            assert_eq!(copy.overlaps_as_known(), Some(read == Mode::Async));
            let foreign = Handle::from(std::os::windows::io::OwnedHandle::from(copy));
            assert_eq!(
                (foreign.overlaps_as_known(), foreign.overlaps()),
                (None, read == Mode::Async)
            );
            assert_eq!(Handle::from(writer).overlaps_as_known(), Some(false));
        }
        assert_eq!(crate::base::stdio::null().unwrap().overlaps_as_known(), Some(false));
    }
}
