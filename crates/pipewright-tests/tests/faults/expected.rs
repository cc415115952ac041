//! The findings that are known, and are mended later: this list only shrinks.

/// A known finding. A `*` stands for any text.
pub(crate) struct Expected {
    pub(crate) scenario: &'static str,
    /// The caller, its name and its object.
    pub(crate) call: &'static str,
    /// The errors, with spaces between them, or `*`.
    pub(crate) errors: &'static str,
    /// The kind of finding, and its text.
    pub(crate) kind: &'static str,
    pub(crate) text: &'static str,
    /// The row of the audit, or what is known about it.
    pub(crate) row: &'static str,
}

const fn row(
    row: &'static str,
    scenario: &'static str,
    call: &'static str,
    errors: &'static str,
    finding: (&'static str, &'static str),
) -> Expected {
    Expected { scenario, call, errors, kind: finding.0, text: finding.1, row }
}

/// Refused for good, although only one call failed.
const NEVER_AGAIN: (&str, &str) = ("next", "*its tree cannot be supervised: *");
const SYNCED: (&str, &str) = ("untrue", "synced after a failed sync*");
const NO_ROOM: &str = "EMFILE ENFILE ENOMEM EAGAIN";

pub(crate) const EXPECTED: &[Expected] = &[
    row("D2", "disk_*", "host f*sync *", "EINTR EAGAIN", SYNCED),
    row("D3", "disk_*", "host f*sync *", "EINVAL EOPNOTSUPP ENOSYS", SYNCED),
    row("D4", "*", "host open /proc/self/mountinfo", NO_ROOM, ("changed", "*")),
    row("D4", "*", "host open /proc/self/mountinfo", NO_ROOM, ("next", "*controller is mounted*")),
    row("D4", "*", "host read /proc/#/mountinfo", "ENOMEM", ("changed", "*")),
    row("D4", "*", "host read /proc/#/mountinfo", "ENOMEM", ("next", "*controller is mounted*")),
    row("D4", "*", "host mkdirat pipewright-*", "EIO", ("changed", "*")),
    row("D4", "*", "host memfd_create", NO_ROOM, NEVER_AGAIN),
    row("D7", "stop_with", "host * /proc*", "*", ("untrue", "*still runs")),
    row("D7", "stop_with", "host * /proc*", "*", ("left", "*sleep*")),
    row("D7", "stop_with", "host pidfd_open", "*", ("*", "*")),
    row("R3", "*", "host *", "*", NEVER_AGAIN),
    row("R3", "*", "child *", "*", NEVER_AGAIN),
    row("R3", "*", "supervisor *", "*", NEVER_AGAIN),
    row("R4", "*", "supervisor sendto socket", "*", ("hang", "in the call")),
    row("R7", "pool*", "host ppoll", "ENOMEM", ("next", "*cannot wait for workers*")),
    row("R8", "tool_pipe", "*", "*", ("twice", "*")),
    row("R8", "tool_pipe", "*", "*", ("untrue", "runs of*")),
    // New: a slot whose answer could not be received stays in use.
    row("new: slot in use", "slot_runner", "*", "*", ("next", "*the tree slot is in use*")),
    // New: its removal is tried once.
    row("new: group stays", "*", "host unlinkat pipewright-*", "*", ("left", "*control group*")),
    // New: a failed start of a supervisor in a slot that exists.
    row("new: exec of a supervisor", "slot", "child execveat*", "*", ("hang", "in the call")),
    row("B4", "slot*", "host recvmsg socket", "*", ("twice", "*")),
    row("B4", "slot*", "host recvmsg socket", "*", ("untrue", "stdout bytes*")),
];

impl Expected {
    /// Returns true if it is that finding.
    pub(crate) fn is(
        &self,
        scenario: &str,
        call: &str,
        error: &str,
        kind: &str,
        text: &str,
    ) -> bool {
        self.is_for(scenario, call, error) && matches(self.kind, kind) && matches(self.text, text)
    }
}

impl Expected {
    /// Returns true if that case is known to hang.
    pub(crate) fn hangs(&self, scenario: &str, call: &str, error: &str) -> bool {
        self.kind == "hang" && self.is_for(scenario, call, error)
    }

    fn is_for(&self, scenario: &str, call: &str, error: &str) -> bool {
        matches(self.scenario, scenario)
            && matches(self.call, call)
            && (self.errors == "*" || self.errors.split(' ').any(|it| it == error))
    }
}

/// Returns true if a text is of that form, in which a `*` stands for any text.
fn matches(form: &str, text: &str) -> bool {
    let Some((start, rest)) = form.split_once('*') else { return form == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    rest.is_empty()
        || (0..=text.len()).any(|at| text.is_char_boundary(at) && matches(rest, &text[at..]))
}
