//! The handshake, seen through by a task.

use std::future::poll_fn;
use std::time::Instant;

use pipewright::{Child, ExitStatus};
use pipewright_os::base::wait::{Slot, Watch};
use pipewright_os::channel::handle_channel::End;

use super::{END_TAKES, Greeting, slots, timed_out};
use crate::channel::Line;
use crate::error::{Error, ErrorKind, WAIT};
use crate::options::Options;

/// As [`host`](super::host), of a side that has started the other one.
pub(crate) async fn host_async(end: End, child: &Child, options: &Options) -> Result<Line, Error> {
    let greeted = match Greeting::host(end, options) {
        Ok(greeting) => see_through(greeting, Some(child)).await,
        Err(error) => Err(error),
    };
    match greeted {
        Err(error) if matches!(error.kind(), ErrorKind::Died { .. }) => {
            let until = Instant::now().checked_add(END_TAKES);
            let status = end_async(child, until).await;
            Err(Error::new(ErrorKind::Died { status }))
        }
        greeted => greeted,
    }
}

/// As [`worker`](super::worker).
pub(crate) async fn worker_async(end: End, options: &Options) -> Result<Line, Error> {
    see_through(Greeting::worker(end, options), None).await
}

async fn see_through(mut greeting: Greeting, child: Option<&Child>) -> Result<Line, Error> {
    let (mut exited, mut watch) = (false, Watch::default());
    loop {
        if greeting.go_on()? {
            return Ok(greeting.into_line());
        }
        if exited {
            // It has ended, and somebody else holds its end.
            return Err(Error::new(ErrorKind::Died { status: None }));
        }
        let mut slots = slots(&greeting, child);
        let until = greeting.until();
        let waited = poll_fn(|context| watch.poll_wait(context, &mut slots, until)).await;
        if waited.map_err(Error::cannot(WAIT))? == 0 {
            return Err(timed_out(child));
        }
        exited = matches!(slots, [_, _, Slot::EventDone]);
    }
}

/// How a child has ended, or ends until then.
pub(crate) async fn end_async(child: &Child, until: Option<Instant>) -> Option<ExitStatus> {
    let (mut watch, mut slots) = (Watch::default(), [Slot::Event(child.child_handle())]);
    // Ignored, here and below: a status that is lost is none.
    let _ = poll_fn(|context| watch.poll_wait(context, &mut slots, until)).await;
    child.try_wait().ok().flatten()
}
