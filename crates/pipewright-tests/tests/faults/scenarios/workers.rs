//! Workers: calls of a pool and conversations, with shared memory and without.

use std::time::Duration;

use pipewright::Command;
use pipewright_ipc::{Channel, Options, Pool, PoolOptions, SharedMemory, worker};

use super::Scenario;
use crate::scene::{Fault, Pass, Scene, expect};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario::new("pool", |_| pool(SharedMemory::Auto)),
        Scenario::new("pool_again", |_| pool(SharedMemory::Auto)).warm(),
        Scenario::new("pool_by_socket", |_| pool(SharedMemory::Off)),
        Scenario::new("channel", |_| Ok(Box::new(|scene| channel(SharedMemory::Auto)(scene)))),
        Scenario::new("channel_by_socket", |_| {
            Ok(Box::new(|scene| channel(SharedMemory::Off)(scene)))
        }),
        Scenario::new("channel_again", open_channel).warm().without_workers(),
    ]
}

const KIND: &str = "PIPEWRIGHT_FAULTS_WORKER";

/// Runs this process as a worker, if it was started as one.
pub(crate) fn serve() -> bool {
    if !worker::is_worker() {
        return false;
    }
    // Its errors are seen at the other end.
    if std::env::var_os(KIND).is_some_and(|kind| kind == "channel") {
        if let Ok(mut channel) = worker::channel::<pipewright_ipc::Raw, pipewright_ipc::Raw>(
            &options(SharedMemory::Auto),
        ) {
            while let Ok(bytes) = channel.recv().and_then(|message| message.bytes()) {
                if channel.send_bytes(&bytes).is_err() {
                    break;
                }
            }
        }
    } else {
        let _ = worker::serve(&options(SharedMemory::Auto), |question, answer| {
            answer.extend(question.iter().rev());
        });
    }
    true
}

fn options(shared_memory: SharedMemory) -> Options {
    let timeout = Some(Duration::from_secs(4));
    Options { ring_bytes: 64 << 10, shared_memory, timeout, ..Options::default() }
}

fn command(kind: &str) -> Result<Command, Fault> {
    let own = std::env::current_exe().map_err(Fault::told)?;
    Ok(Command::new(own).env(KIND, kind).owned())
}

/// Makes a pool; each pass is a short call and a long one.
fn pool(shared_memory: SharedMemory) -> Result<Pass, Fault> {
    let options = PoolOptions {
        max_workers: 1,
        call_timeout: Some(Duration::from_secs(4)),
        channel: options(shared_memory),
        backoff: Duration::from_millis(1),
        ..PoolOptions::default()
    };
    let pool = Pool::new(command("pool")?, options).map_err(Fault::told)?;
    Ok(Box::new(move |_| {
        for length in [10, 100_000] {
            let question: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
            let answer = pool.call(question.clone()).map_err(Fault::told)?.into_bytes();
            let wanted: Vec<u8> = question.into_iter().rev().collect();
            expect("bytes of an answer", answer.len(), wanted.len())?;
            expect("the answer", answer, wanted)?;
        }
        Ok(String::new())
    }))
}

/// Returns a pass that starts a worker, speaks with it and ends it.
fn channel(shared_memory: SharedMemory) -> impl Fn(&Scene) -> crate::scene::Seen {
    move |_| {
        let channel = Channel::start(&mut command("channel")?, &options(shared_memory));
        let mut channel: Channel = channel.map_err(Fault::told)?;
        let seen = speak(&mut channel)?;
        let status = channel.close().map_err(Fault::told)?;
        expect("code", status.and_then(|status| status.code()), Some(0))?;
        Ok(seen)
    }
}

fn open_channel(_: &Scene) -> Result<Pass, Fault> {
    let start = || {
        let started = Channel::start(&mut command("channel")?, &options(SharedMemory::Auto));
        started.map_err(Fault::told)
    };
    let mut channel: Option<Channel> = Some(start()?);
    Ok(Box::new(move |_| {
        let mut open = match channel.take() {
            Some(open) => open,
            None => start()?,
        };
        // After an error the conversation is over.
        let seen = speak(&mut open)?;
        channel = Some(open);
        Ok(seen)
    }))
}

fn speak(channel: &mut Channel) -> crate::scene::Seen {
    for length in [10, 200_000] {
        let question: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
        channel.send_bytes(&question).map_err(Fault::told)?;
        let answer = channel.recv().and_then(|message| message.bytes()).map_err(Fault::told)?;
        expect("bytes of an answer", answer.len(), question.len())?;
        expect("the answer", answer, question)?;
    }
    Ok(String::new())
}
