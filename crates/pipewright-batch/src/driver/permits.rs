//! Permits: the CPUs that the jobs may use below a jobserver, a token for each.
//!
//! The scheduler says how many it wants. Tokens that are there are taken, and kept until a job needs no more of them: a
//! job on four CPUs gets them one by one. If no job runs, the next one starts with what there is, so that a batch which
//! waits for tokens always has a job whose end it can wait for.

use std::io;
use std::sync::Arc;

use pipewright::Handle;

use super::{Driver, Event, Executor};
use crate::jobserver::{Part, Token};
use crate::scheduler;

/// The tokens of a batch.
#[derive(Debug)]
pub(super) struct Permits {
    part: Part,
    tokens: Vec<Token>,
    /// There was no token. A message comes when there may be one.
    is_waiting: bool,
    has_failed: bool,
    /// The handles that each job inherits.
    handles: Arc<[(Handle, i32)]>,
}

impl Permits {
    pub(super) fn new(part: Part) -> io::Result<Permits> {
        let handles = part.inherited()?.into();
        Ok(Permits { part, tokens: Vec::new(), is_waiting: false, has_failed: false, handles })
    }

    pub(super) fn part(&self) -> &Part {
        &self.part
    }

    pub(super) fn handles(&self) -> Arc<[(Handle, i32)]> {
        Arc::clone(&self.handles)
    }

    /// Records that there may be a token again.
    pub(super) fn look(&mut self) {
        self.is_waiting = false;
    }

    /// Takes tokens until there are `count`. Returns false if there are fewer now.
    fn acquire(&mut self, count: u32) -> io::Result<bool> {
        while self.tokens.len() < count as usize {
            if self.is_waiting {
                return Ok(false);
            }
            match self.part.try_acquire()? {
                Some(token) => self.tokens.push(token),
                None => self.is_waiting = true,
            }
        }
        Ok(true)
    }

    /// Returns all tokens but `kept`.
    fn release(&mut self, kept: u32) {
        self.tokens.truncate(kept as usize);
    }

    /// Makes up for tokens that were lost with killed jobs. No job runs.
    fn refill(&mut self) -> io::Result<()> {
        if !self.part.can_refill() {
            return Ok(());
        }
        self.tokens.clear();
        self.is_waiting = false;
        self.part.refill()
    }
}

impl<E: Executor> Driver<E> {
    /// Lets no job start before the one that has just ended is accounted for, if it was the last one that ran: only
    /// while nothing runs can lost tokens be told from used ones.
    pub(super) fn pause_after_last_job(&mut self) {
        if self.permits.part.can_refill() && self.live.running() == 0 {
            self.report(scheduler::Event::Permits { cpus: 0 });
        }
    }

    /// Takes the tokens that the next jobs need, starts these, and returns what no job needs.
    pub(super) fn balance_permits(&mut self) {
        if !self.permits.part.has_tokens() {
            return;
        }
        loop {
            let in_use = self.scheduler.cpus_in_use();
            if in_use == 0 {
                let refilled = self.permits.refill();
                self.note_failed_jobserver(refilled);
            }
            let Some(wanted) = self.scheduler.wanted_permits() else {
                self.permits.release(in_use);
                return self.report(scheduler::Event::Permits { cpus: in_use });
            };
            let acquired = self.permits.acquire(wanted);
            let has_all = self.note_failed_jobserver(acquired).unwrap_or(false);
            if !has_all && in_use > 0 {
                return;
            }
            self.report(scheduler::Event::Permits { cpus: wanted });
            self.carry_out_decisions();
        }
    }

    /// Tells once of a jobserver that fails. Jobs run one at a time then.
    fn note_failed_jobserver<T>(&mut self, result: io::Result<T>) -> Option<T> {
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        if !std::mem::replace(&mut self.permits.has_failed, true) {
            let note = format!("the jobserver fails, so one job runs at a time: {error}");
            self.events.push_back(Event::Note(note));
        }
        None
    }
}
