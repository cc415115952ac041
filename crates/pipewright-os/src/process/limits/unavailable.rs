//! A limit that cannot be held here, with the reason and a remedy.

use std::error::Error;
use std::fmt;

use super::LimitKind;
use crate::base::error::OneLine;

/// The reason why a limit cannot be held here, and what would help.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitUnavailable {
    /// The limit.
    pub limit: LimitKind,
    /// The reason.
    pub reason: String,
    /// The command or the setting that would help, if one is known.
    pub remedy: Option<String>,
}

/// A limit that was asked for and is not in force.
pub type MissingLimit = LimitUnavailable;

impl LimitUnavailable {
    pub(crate) fn new(limit: LimitKind, reason: impl Into<String>) -> LimitUnavailable {
        LimitUnavailable { limit, reason: reason.into(), remedy: None }
    }
}

impl fmt::Display for LimitUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be held: {}", self.limit, OneLine(&self.reason))?;
        match &self.remedy {
            Some(remedy) => write!(f, "; try: {}", OneLine(remedy)),
            None => Ok(()),
        }
    }
}

impl Error for LimitUnavailable {}
