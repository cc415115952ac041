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

pub(crate) const EXPECTED: &[Expected] = &[];

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
