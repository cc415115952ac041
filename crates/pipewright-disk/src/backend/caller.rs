//! Does everything on the calling thread: plain, synchronous calls.

use std::collections::VecDeque;
use std::io;

use pipewright_os::disk::file::{Finished, Request};

use super::witness::Witness;
use super::{Backend, Tell, cancelled, remove};
use crate::class::Seen;

#[derive(Debug)]
pub(crate) struct CallerBackend {
    pushed: VecDeque<(usize, Request)>,
    done: VecDeque<(Finished, Seen)>,
    witness: Option<Witness>,
}

impl CallerBackend {
    pub(crate) fn new(classes: bool, times: bool) -> CallerBackend {
        let witness = classes.then(|| Witness::new(times));
        CallerBackend { pushed: VecDeque::new(), done: VecDeque::new(), witness }
    }
}

impl Backend for CallerBackend {
    fn push(&mut self, token: usize, request: Request) -> Result<(), Request> {
        self.pushed.push_back((token, request));
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        while let Some((token, mut request)) = self.pushed.pop_front() {
            let before = self.witness.as_ref().map(Witness::look);
            let result = request.perform();
            let seen = match (&self.witness, before) {
                (Some(witness), Some(before)) => witness.inline_since(before),
                _ => Seen::Nothing,
            };
            self.done.push_back((Finished { token, request, result }, seen));
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        self.submit()
    }

    fn take(&mut self) -> Option<(Finished, Seen)> {
        self.done.pop_front()
    }

    fn cancel(&mut self, token: usize) {
        if let Some(request) = remove(&mut self.pushed, token) {
            self.done.push_back((cancelled(token, request), Seen::Nothing));
        }
    }

    fn waker(&self) -> Option<Tell> {
        None
    }
}
