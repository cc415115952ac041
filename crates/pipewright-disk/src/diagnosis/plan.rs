//! Which tests there are.

use std::fmt;

use super::DiagnoseOptions;

/// One test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Test {
    /// Whether the requests are made at once, or one after the other by plain calls.
    pub asynchronous: bool,
    /// Whether they bypass the cache.
    pub direct: bool,
    /// What they do.
    pub work: Work,
}

/// What the requests of a test do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Work {
    /// Read.
    Read,
    /// Write over what is there.
    Overwrite,
    /// Write past the end.
    Extend,
    /// Write into room that the file was given before.
    Preallocated,
    /// Write where the file has a hole.
    Hole,
    /// Wait until the disk has everything.
    Sync,
}

impl Work {
    /// A name for machines, which stays as it is: `read`, `extend`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Work::Read => "read",
            Work::Overwrite => "overwrite",
            Work::Extend => "extend",
            Work::Preallocated => "preallocated",
            Work::Hole => "hole",
            Work::Sync => "sync",
        }
    }

    /// Whether it writes.
    #[must_use]
    pub fn is_write(self) -> bool {
        self != Work::Read
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.asynchronous { "asynchronous" } else { "synchronous" };
        let cache = if self.direct { "unbuffered" } else { "buffered" };
        let work = match self.work {
            Work::Read => "reads",
            Work::Overwrite => "overwrites",
            Work::Extend => "extending writes",
            Work::Preallocated => "writes into preallocated space",
            Work::Hole => "writes into a hole",
            Work::Sync => return write!(f, "{way} syncs"),
        };
        write!(f, "{way}, {cache} {work}")
    }
}

/// The tests that were asked for, in order: first past the cache, so that they leave it as it was.
pub(super) fn tests(is_folder: bool, options: &DiagnoseOptions) -> Vec<Test> {
    let mut tests = Vec::new();
    for direct in [true, false] {
        for asynchronous in [true, false] {
            tests.push(Test { asynchronous, direct, work: Work::Read });
        }
    }
    if is_folder || options.writes || options.write_existing {
        for work in [Work::Overwrite, Work::Extend, Work::Preallocated, Work::Hole] {
            for direct in [true, false] {
                tests.push(Test { asynchronous: true, direct, work });
            }
        }
        tests.push(Test { asynchronous: true, direct: false, work: Work::Sync });
    }
    let is_wanted = |test: &Test| {
        options.synchronous.is_none_or(|synchronous| test.asynchronous != synchronous)
            && options.direct.is_none_or(|direct| test.direct == direct)
    };
    tests.retain(is_wanted);
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_tests_come_first_and_only_what_was_asked_for_comes() {
        let options = DiagnoseOptions::default();
        assert_eq!(tests(false, &options).len(), 4);
        assert_eq!(tests(true, &options).len(), 13);
        let only = DiagnoseOptions { direct: Some(true), synchronous: Some(false), ..options };
        let only = tests(true, &only);
        assert_eq!(only.len(), 5);
        assert_eq!(only[0].to_string(), "asynchronous, unbuffered reads");
    }
}
