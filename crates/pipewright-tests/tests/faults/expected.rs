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

pub(crate) const EXPECTED: &[Expected] = &[
    row("D7", "stop_with", "host * /proc*", "*", ("untrue", "*still runs")),
    row("D7", "stop_with", "host * /proc*", "*", ("left", "*sleep*")),
    row("D7", "stop_with", "host pidfd_open", "*", ("*", "*")),
    row("R8", "tool_pipe", "*", "*", ("twice", "*")),
    row("R8", "tool_pipe", "*", "*", ("untrue", "runs of*")),
    row("B4", "slot*", "host recvmsg socket", "*", ("twice", "*")),
    row("B4", "slot*", "host recvmsg socket", "*", ("untrue", "stdout*")),
    // What is left of it: a supervisor or a guard that has no room is taken for one that is refused.
    row("R3", "*", "host recvfrom socket", "EAGAIN", ("next", "*its tree cannot be supervised: *")),
    row("R3", "*", "supervisor *", "*", ("next", "*its tree cannot be supervised: *")),
    row("R3", "*", "child ppoll", "*", ("next", "*its tree cannot be supervised: *")),
    row("R5", "slot*", "*", "*", ("next", "*held open true*")),
    // `communicate` takes over the files of a `Popen` through a descriptor of its own, and after an error the `with` waits for a
    // command whose stdin stays open.
    row(
        "new: communicate",
        "python_communicate",
        "python * /dev/null",
        "*",
        ("hang", "in the call"),
    ),
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
