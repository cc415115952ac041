//! The scenarios: a small use of the product each, which checks every byte.

mod batches;
mod commands;
mod disks;
mod trees;
mod workers;

use std::time::Duration;

use crate::scene::{Fault, Pass, Scene};

pub(crate) use workers::serve;

/// A small use of the product.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Opens what the passes use.
    pub(crate) open: fn(&Scene) -> Result<Pass, Fault>,
    /// True if a pass without a failure comes before.
    pub(crate) warm: bool,
    /// Those whose calls fail.
    pub(crate) roles: &'static [&'static str],
    /// The time after which it hangs.
    pub(crate) limit: Duration,
    /// The number of times that its cases count in the short run.
    pub(crate) weight: usize,
    /// Failures that it leaves out: the start of "caller name object", and the errors.
    pub(crate) left_out: &'static [(&'static str, &'static [i32])],
}

const LIBRARY: &[&str] = &["host", "child", "supervisor", "worker"];
const TOOL: &[&str] = &["tool", "tool-child", "supervisor"];
const PYTHON: &[&str] = &["python", "python-child", "supervisor"];

impl Scenario {
    const fn new(name: &'static str, open: fn(&Scene) -> Result<Pass, Fault>) -> Scenario {
        Scenario {
            name,
            open,
            warm: false,
            roles: LIBRARY,
            limit: Duration::from_secs(10),
            weight: 4,
            left_out: &[],
        }
    }

    const fn warm(mut self) -> Scenario {
        self.warm = true;
        self
    }

    /// Leaves out errors that mean something else there than what they say, or that the documents except.
    const fn without(mut self, left_out: &'static [(&'static str, &'static [i32])]) -> Scenario {
        self.left_out = left_out;
        self
    }

    /// Leaves out the calls of workers, whose own errors end the conversation.
    const fn without_workers(mut self) -> Scenario {
        self.roles = &["host", "child", "supervisor"];
        self
    }

    const fn of(mut self, roles: &'static [&'static str]) -> Scenario {
        self.roles = roles;
        self.limit = Duration::from_secs(20);
        self.weight = 1;
        self
    }
}

/// Returns all scenarios.
pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    all.extend(commands::all());
    all.extend(trees::all());
    all.extend(disks::all());
    all.extend(workers::all());
    all.extend(batches::all());
    all
}

/// Makes a scenario of a pass that needs nothing to be open.
macro_rules! passes {
    ($($name:ident),* $(,)?) => {
        vec![$($crate::scenarios::Scenario::new(stringify!($name), |_| Ok(Box::new($name)))),*]
    };
}
pub(crate) use passes;
