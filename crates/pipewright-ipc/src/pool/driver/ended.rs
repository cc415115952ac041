//! The end of a pool's workers, and what becomes of their calls.

use std::time::Instant;

use pipewright::{ExitStatus, OutOfMemory};

use super::PoolDriver;
use crate::error::{Error, ErrorKind};
use crate::pool::mailbox::QueuedCall;
use crate::pool::worker::Worker;
use crate::trace;

/// The most workers of a call that may end before it is sent to them. After that the call is lost: the next worker
/// would not take it either.
const MAX_RETURNS: u32 = 16;

impl PoolDriver {
    /// Ends the calls of a worker that was killed and does not end.
    pub(super) fn end_calls_of_abandoned(&mut self, at: usize) {
        let Some(worker) = self.workers.get_mut(at) else { return };
        let (_, stderr_tail) = worker.finish(self.options.on_line.as_ref());
        let fault = worker.fault.as_ref().map(Error::share);
        let (pid, has_served) = (worker.child.id(), worker.has_served);
        let out_of_memory = worker.child.out_of_memory();
        let end = WorkerEnd { pid, has_served, status: None, stderr_tail, fault, out_of_memory };
        let calls = take_calls(worker);
        self.end_calls(calls, &end);
    }

    pub(super) fn handle_end(&mut self, mut worker: Worker, now: Instant) {
        let (status, stderr_tail) = worker.finish(self.options.on_line.as_ref());
        let mut fault = worker.fault.take();
        if !worker.was_killed {
            // The exit status is enough.
            fault = fault.filter(|fault| !fault.is_disconnect());
        }
        let (pid, has_served) = (worker.child.id(), worker.has_served);
        let out_of_memory = worker.child.out_of_memory();
        let end = WorkerEnd { pid, has_served, status, stderr_tail, fault, out_of_memory };
        let error = (!worker.is_retired).then(|| end.error(1));
        trace::worker_ended(&trace::WorkerEnded {
            worker: worker.number,
            pid: end.pid,
            jobs: worker.jobs.get(),
            status,
            stderr_tail: &end.stderr_tail,
            reason: error.as_ref(),
        });
        if !worker.is_retired {
            if worker.has_served {
                self.counters.died.add_one();
                // It ended before its first reply, as the next one may: without a pause they would end and start again
                // as fast as they can.
                if worker.jobs.get() == 0 {
                    self.starts.crashes += 1;
                    self.back_off(now, self.starts.crashes);
                }
            } else {
                self.note_failed_start(now, &end.error(1));
            }
        }
        let calls = take_calls(&mut worker);
        self.end_calls(calls, &end);
    }

    /// Ends the calls of a worker, or gives them to other workers: true for each that it may have executed.
    fn end_calls(&mut self, calls: Vec<(QueuedCall, bool)>, end: &WorkerEnd) {
        for (mut call, was_sent) in calls {
            // An unsent call was no attempt: that worker cannot have seen it. Its returns are bounded instead, since
            // workers that all end at once would pass it on for ever.
            call.attempts -= u32::from(!was_sent);
            call.returns += u32::from(!was_sent);
            let may_retry =
                call.idempotent && !call.has_reported && call.attempts <= self.options.retries;
            if (!was_sent && call.returns <= MAX_RETURNS) || may_retry {
                if was_sent {
                    self.counters.retries.add_one();
                }
                // At the front, because it has waited already.
                self.waiting.push_front(call);
            } else {
                self.counters.lost.add_one();
                call.end(Err(end.error(call.attempts)));
            }
        }
    }
}

/// Takes the open calls of a worker that has ended. Cancelled ones are dropped. True: the call was sent.
fn take_calls(worker: &mut Worker) -> Vec<(QueuedCall, bool)> {
    let calls = std::mem::take(&mut worker.calls);
    let open = calls.into_iter().filter(|active| !active.is_cancelled);
    open.map(|active| (worker.withdraw(active.call.id), active.call))
        .map(|(was_unsent, call)| (call, !was_unsent))
        .collect()
}

/// The end of a worker, for the errors of its calls.
struct WorkerEnd {
    pid: u32,
    /// The handshake was complete: calls may have been lost.
    has_served: bool,
    status: Option<ExitStatus>,
    stderr_tail: String,
    fault: Option<Error>,
    out_of_memory: Option<OutOfMemory>,
}

impl WorkerEnd {
    /// Returns the error of a call of this worker, the last of `attempts` workers that had it.
    fn error(&self, attempts: u32) -> Error {
        let WorkerEnd { pid, has_served, status, stderr_tail, fault, out_of_memory } = self;
        if !has_served {
            return self.without_handshake();
        }
        let (status, stderr_tail) = (*status, stderr_tail.clone());
        let out_of_memory = *out_of_memory;
        let kind = ErrorKind::Lost { pid: *pid, status, stderr_tail, attempts, out_of_memory };
        match fault {
            Some(fault) => Error::caused(kind, fault.share()),
            None => Error::new(kind),
        }
    }

    fn without_handshake(&self) -> Error {
        let WorkerEnd { pid, status, stderr_tail, fault, .. } = self;
        let no_handshake =
            |status, cause| Error::no_handshake((*pid, status), stderr_tail.clone(), cause);
        match fault {
            None => no_handshake(*status, None),
            // The status would be that of the kill by this process.
            Some(fault) if fault.is_disconnect() => no_handshake(None, None),
            Some(fault) if fault.is_timeout() => no_handshake(None, Some(fault)),
            Some(fault) => fault.share(),
        }
    }
}
