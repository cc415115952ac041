//! Many commands at once, by one task.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::future::{Future, poll_fn};
use std::iter::Fuse;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use pipewright_os::mux::{Slot, Watch};

use super::seeing::Seeing;
use crate::cancel::CancelToken;
use crate::command::{CAPTURED, Command, Keep, into_text};
use crate::error::Error;
use crate::output::{Capture, Output};
use crate::pipeline::Stage;
use crate::run_all::RunAll;
use crate::text::Decoding;

/// For tasks of a tokio runtime: feature `tokio`.
impl<'a, I> RunAll<I>
where
    I: Iterator<Item: Into<Stage<'a>>> + Unpin,
{
    /// As [`captures`](Self::captures), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future kills those that run, and starts no more.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use pipewright::{Command, run_all};
    /// let hosts = ["one", "two", "three"];
    /// let captures = run_all(hosts.map(|host| Command::new("echo").arg(host).take())).captures_async().await;
    /// assert_eq!(captures.into_iter().filter(|capture| capture.is_ok()).count(), 3);
    /// # });
    /// ```
    pub async fn captures_async(self) -> Vec<Result<Capture, Error>> {
        let (mut ends, mut all) = (self.as_they_end_async(), Vec::new());
        while let Some(end) = ends.next().await {
            all.push(end);
        }
        all.sort_unstable_by_key(|(index, _)| *index);
        all.into_iter().map(|(_, result)| result).collect()
    }

    /// As [`as_they_end`](Self::as_they_end), for a task.
    pub fn as_they_end_async(self) -> AsTheyEndAsync<I> {
        AsTheyEndAsync {
            commands: self.commands.fuse(),
            concurrency: self.concurrency,
            fail_fast: self.fail_fast,
            cancel: self.cancel,
            watch: Watch::default(),
            running: Vec::new(),
            next_index: 0,
            over: VecDeque::new(),
            stopped: false,
        }
    }
}

/// What came of many commands, as they end: see [`RunAll::as_they_end_async`].
///
/// # Drop
/// Those that still run are killed, with the descendants that can be found.
#[derive(Debug)]
pub struct AsTheyEndAsync<I: Iterator> {
    commands: Fuse<I>,
    concurrency: usize,
    fail_fast: bool,
    cancel: Option<CancelToken>,
    /// For the cancel.
    watch: Watch,
    running: Vec<Member>,
    next_index: usize,
    over: VecDeque<(usize, Result<Capture, Error>)>,
    /// No more are started.
    stopped: bool,
}

#[derive(Debug)]
struct Member {
    index: usize,
    seeing: Seeing,
    program: OsString,
    decoding: Decoding,
}

impl<'a, I> AsTheyEndAsync<I>
where
    I: Iterator<Item: Into<Stage<'a>>> + Unpin,
{
    /// What ends next, with the number of its command, counted from 0; `None` after the last.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing: the next call goes on where this one was.
    pub async fn next(&mut self) -> Option<(usize, Result<Capture, Error>)> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, Result<Capture, Error>)>> {
        loop {
            self.look_for_cancel(cx);
            self.start();
            if let Some(over) = self.over.pop_front() {
                return Poll::Ready(Some(over));
            }
            if self.running.is_empty() {
                return Poll::Ready(None);
            }
            if !self.poll_all(cx) {
                return Poll::Pending;
            }
        }
    }

    /// Whether one of them is over.
    fn poll_all(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        // From the end: what takes the place of one that is taken out has been looked at.
        for at in (0..self.running.len()).rev() {
            let Some(member) = self.running.get_mut(at) else { continue };
            if let Poll::Ready(output) = Pin::new(&mut member.seeing).poll(cx) {
                let member = self.running.swap_remove(at);
                self.end(member.index, member.text_of(output));
                any = true;
            }
        }
        any
    }

    fn look_for_cancel(&mut self, cx: &mut Context<'_>) {
        let Some(token) = self.cancel.as_ref().filter(|_| !self.stopped) else { return };
        if let Ok(wake) = token.wake() {
            // For the wake-up. Ignored: the token is asked itself.
            let _ = self.watch.poll_wait(cx, &mut [Slot::Wake(wake)], None);
        }
        if token.is_cancelled() {
            self.stop();
        }
    }

    fn start(&mut self) {
        while !self.stopped && self.running.len() < self.concurrency {
            let Some(command) = self.commands.next() else { return };
            let mut stage = command.into();
            let index = self.next_index;
            self.next_index += 1;
            match Member::start(index, stage.command_mut()) {
                Ok(member) => self.running.push(member),
                Err(error) => self.end(index, Err(error)),
            }
        }
    }

    fn end(&mut self, index: usize, result: Result<Capture, Error>) {
        let failed = !result.as_ref().is_ok_and(Capture::success);
        self.over.push_back((index, result));
        if failed && self.fail_fast {
            self.stop();
        }
    }

    fn stop(&mut self) {
        if !self.stopped {
            self.stopped = true;
            self.running.iter_mut().for_each(|member| member.seeing.stop());
        }
    }
}

impl<'a, I> Stream for AsTheyEndAsync<I>
where
    I: Iterator<Item: Into<Stage<'a>>> + Unpin,
{
    type Item = (usize, Result<Capture, Error>);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(cx)
    }
}

impl Member {
    fn start(index: usize, command: &mut Command) -> Result<Member, Error> {
        let seeing = Seeing::new(command.steps(CAPTURED, Keep::Both)?);
        let program = command.get_program().to_owned();
        Ok(Member { index, seeing, program, decoding: command.decoding() })
    }

    fn text_of(&self, output: Result<Output, Error>) -> Result<Capture, Error> {
        into_text(&self.program, self.decoding, output?)
    }
}
