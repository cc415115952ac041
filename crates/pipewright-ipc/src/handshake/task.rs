//! The handshake for tasks of a tokio runtime. Only the wait differs.

use std::future::poll_fn;

use pipewright::Child;
use pipewright_os::base::wait::Watch;
use pipewright_os::channel::handle_channel::ChannelEnd;

use super::{Handshake, connection_of, has_exited, slots, step};
use crate::connection::Connection;
use crate::error::Error;
use crate::exit;
use crate::options::Options;

/// Like [`host`](super::host), for a worker that this process started.
pub(crate) async fn host_async(
    end: ChannelEnd,
    child: &Child,
    options: &Options,
) -> Result<Connection, Error> {
    let connected = match Handshake::host(end, options) {
        Ok(handshake) => run(handshake, Some(child)).await,
        Err(error) => Err(error),
    };
    match connected {
        Err(error) => Err(exit::explain_async(error, Some(child), None).await),
        connected => connected,
    }
}

/// Like [`worker`](super::worker).
pub(crate) async fn worker_async(end: ChannelEnd, options: &Options) -> Result<Connection, Error> {
    run(Handshake::worker(end, options), None).await
}

async fn run(handshake: Handshake, child: Option<&Child>) -> Result<Connection, Error> {
    let mut handshake = Box::new(handshake);
    let completed = complete(&mut handshake, child).await;
    connection_of(handshake, completed)
}

async fn complete(handshake: &mut Handshake, child: Option<&Child>) -> Result<(), Error> {
    let (mut exited, mut watch) = (false, Watch::default());
    while !step(handshake, exited)? {
        let (mut slots, until) = (slots(handshake, child), handshake.until());
        let done = poll_fn(|context| watch.poll_wait(context, &mut slots, until)).await;
        exited = has_exited(done, slots, child)?;
    }
    Ok(())
}
