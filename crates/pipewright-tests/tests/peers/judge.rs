//! Promises that hold after a case, whatever its worker did.

use std::collections::HashSet;
use std::time::Duration;

use crate::plan::{Plan, Way};
use crate::run::{End, SILENCE, Seen};

/// A promise that a case has broken.
#[derive(Debug)]
#[expect(dead_code, reason = "printed")]
pub(crate) enum Finding {
    /// A call or the end of the host took longer than ten times its limit.
    Late(Duration),
    Memory {
        mib: usize,
        most: usize,
    },
    Descriptors {
        seen: usize,
        most: usize,
    },
    Processes {
        seen: usize,
        most: usize,
    },
    /// Processes were left.
    Left(usize),
    /// A call was executed more often than allowed.
    Twice {
        number: u64,
        times: usize,
    },
    /// A cancelled call was executed later.
    Zombie {
        number: u64,
    },
    /// A call failed whose answer an honest worker had sent.
    Lost {
        number: u64,
    },
    /// A call failed though there was time and an honest worker.
    Starved {
        number: u64,
        end: End,
    },
    /// A call got the reply of another one.
    Other {
        number: u64,
        got: u64,
    },
    /// A reply came to a call that cannot have been sent.
    Unsent {
        number: u64,
    },
    Cancels {
        seen: usize,
    },
    /// The host was busy although no worker did anything.
    Busy(Duration),
    /// The text of an error is long, or has what a terminal obeys.
    Text(String),
    /// The host has taken so much of messages that it cannot use.
    Useless {
        mib: u64,
    },
}

impl Finding {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Finding::Late(_) => "late",
            Finding::Memory { .. } => "memory",
            Finding::Descriptors { .. } => "descriptors",
            Finding::Processes { .. } => "processes",
            Finding::Left(_) => "left",
            Finding::Twice { .. } => "twice",
            Finding::Zombie { .. } => "zombie",
            Finding::Lost { .. } => "lost",
            Finding::Starved { .. } => "starved",
            Finding::Other { .. } => "other",
            Finding::Unsent { .. } => "unsent",
            Finding::Cancels { .. } => "cancels",
            Finding::Busy(_) => "busy",
            Finding::Text(_) => "text",
            Finding::Useless { .. } => "useless",
        }
    }
}

/// The most retries of a call: the default of the options.
const RETRIES: usize = 2;

pub(crate) fn findings(plan: &Plan, seen: &Seen) -> Vec<Finding> {
    let mut findings = Vec::new();
    let late = (plan.timeout * 10).max(Duration::from_secs(3));
    let slowest = seen.calls.iter().map(|call| call.took).max().unwrap_or_default();
    if slowest > late {
        findings.push(Finding::Late(slowest));
    }
    // A channel has the timeout; the drop of a pool waits 100 ms; a shutdown has its steps.
    // The goodbye, SIGTERM and the kill take 1.7 s.
    let drained = (plan.drain + Duration::from_millis(1700)) * 5;
    let steps = if plan.shuts_down { drained } else { Duration::from_secs(3) };
    if seen.closing > steps {
        findings.push(Finding::Late(seen.closing));
    }
    bounds(plan, seen, &mut findings);
    // The thread that measures takes some of it.
    if seen.busy > SILENCE / 2 {
        findings.push(Finding::Busy(seen.busy));
    }
    let is_bad = |it: &&String| it.len() > 16 << 10 || it.contains(char::is_control);
    findings.extend(seen.texts.iter().find(is_bad).cloned().map(Finding::Text));
    if seen.left > 0 {
        findings.push(Finding::Left(seen.left));
    }
    let events = |name: &str, number: u64| {
        seen.log.iter().filter(|(it, of, _)| it == name && *of == number).count()
    };
    let allowed = if plan.is_idempotent && plan.way != Way::Items { 1 + RETRIES } else { 1 };
    let mut replies = HashSet::new();
    for call in &seen.calls {
        let number = call.number;
        let times = events("ran", number);
        if times > allowed {
            findings.push(Finding::Twice { number, times });
        }
        match &call.end {
            End::Reply(0x2e2e_2e2e_2e2e_2e2e, b'e') => {
                // Four MiB cannot be on their way to a worker that reads nothing.
                if plan.bytes >= 4 << 20 && times == 0 {
                    findings.push(Finding::Unsent { number });
                }
            }
            End::Reply(got, _) => {
                let is_ghost = *got == 0 || *got == u64::MAX;
                if (*got != number && (plan.is_honest || !is_ghost)) || !replies.insert(number) {
                    findings.push(Finding::Other { number, got: *got });
                }
            }
            End::Failed => {}
            End::Lost if plan.is_honest && events("replied", number) > 0 => {
                findings.push(Finding::Lost { number });
            }
            End::Stopped => {
                let late = call.ended + 300_000_000;
                if seen.log.iter().any(|(it, of, at)| it == "ran" && *of == number && *at > late) {
                    findings.push(Finding::Zombie { number });
                }
            }
            end => {
                if plan.shuts_down && plan.is_honest {
                    findings.push(Finding::Starved { number, end: end.clone() });
                }
            }
        }
    }
    let cancels = seen.log.iter().filter(|(it, ..)| it == "cancel").count();
    if cancels > 2 * seen.calls.len() + 10 {
        findings.push(Finding::Cancels { seen: cancels });
    }
    let taken = seen.log.iter().filter(|(it, ..)| it == "taken").map(|(_, bytes, _)| *bytes).max();
    if let Some(bytes) = taken.filter(|bytes| *bytes > plan.most) {
        findings.push(Finding::Useless { mib: bytes >> 20 });
    }
    findings
}

/// Compares with the figures of docs/workers.md.
fn bounds(plan: &Plan, seen: &Seen, findings: &mut Vec<Finding>) {
    let (workers, most) = (plan.workers, plan.most as usize >> 20);
    // The message that is being received from each worker, and for each call its request, a question, an answer and a
    // reply, with copies on their way; 24 MiB are the rings, the stacks, the allocator and the items.
    let messages = if plan.bytes >= 1 << 20 { 4 } else { 2 };
    let allowed =
        24 + ((2 * workers * plan.ring) >> 20) + (workers + messages * plan.callers) * most;
    let mib = seen.memory_bytes >> 20;
    if mib > allowed {
        findings.push(Finding::Memory { mib, most: allowed });
    }
    let processes = 2 * workers;
    if seen.processes > processes {
        findings.push(Finding::Processes { seen: seen.processes, most: processes });
    }
    let descriptors = 8 + 10 * processes;
    if seen.descriptors > descriptors {
        findings.push(Finding::Descriptors { seen: seen.descriptors, most: descriptors });
    }
}
