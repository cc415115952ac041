//! The list of tests.

use std::fmt;

use super::DiagnoseOptions;

/// One test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Test {
    /// True if all requests are submitted at once; false if plain calls perform one after the other.
    pub asynchronous: bool,
    /// True if the requests bypass the cache.
    pub direct: bool,
    /// The kind of requests.
    pub work: Work,
}

/// The kind of requests of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Work {
    /// Reads.
    Read,
    /// Writes over existing data.
    Overwrite,
    /// Writes past the end of the file.
    Extend,
    /// Writes into preallocated space.
    Preallocated,
    /// Writes into a hole of the file.
    Hole,
    /// Syncs.
    Sync,
}

impl Work {
    /// Returns a stable, machine-readable name such as `read` or `extend`.
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

    /// Returns true if the requests write.
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

/// Returns the selected tests in order. Direct tests come first, because they leave the cache as it was.
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
    fn plan_starts_with_the_four_reads_and_honours_filters() {
        let options = DiagnoseOptions::default();
        assert_eq!(tests(false, &options).len(), 4);
        assert_eq!(tests(true, &options).len(), 13);
        let only = DiagnoseOptions { direct: Some(true), synchronous: Some(false), ..options };
        let only = tests(true, &only);
        assert_eq!(only.len(), 5);
        assert_eq!(only[0].to_string(), "asynchronous, unbuffered reads");
    }
}
