//! The error that ends the search for nodes.

use std::fmt;
use std::io;
use std::net::IpAddr;

use crate::slurm::SlurmError;

/// An error that ends the search for nodes.
#[derive(Debug)]
pub(super) enum ClusterError {
    Slurm(SlurmError),
    Io { action: &'static str, source: io::Error },
    Listen { address: IpAddr, source: io::Error },
    NoAddress,
    Ended(String),
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterError::Slurm(error) => error.fmt(f),
            ClusterError::Io { action, source } => write!(f, "cannot {action}: {source}"),
            ClusterError::Listen { address, source } => {
                write!(f, "cannot listen on {address}: {source}")
            }
            ClusterError::NoAddress => f.write_str(
                "the address of this machine in the cluster is not known: name it with --listen",
            ),
            ClusterError::Ended(text) => f.write_str(text),
        }
    }
}

impl From<SlurmError> for ClusterError {
    fn from(error: SlurmError) -> ClusterError {
        ClusterError::Slurm(error)
    }
}

/// Makes an error of an action.
pub(super) fn cannot(action: &'static str) -> impl FnOnce(io::Error) -> ClusterError {
    move |source| ClusterError::Io { action, source }
}
