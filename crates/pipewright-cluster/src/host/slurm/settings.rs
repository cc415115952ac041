//! Settings of a batch on Slurm.

use std::ffi::OsString;
use std::net::IpAddr;

/// Settings of a batch on Slurm.
///
/// ```no_run
/// use pipewright_batch::{Batch, Job};
/// use pipewright_cluster::{Nodes, Slurm};
/// let nodes = Nodes::new().slurm(Slurm::new(4).argument("--time=10"));
/// Batch::new().nodes(nodes).run((0..100).map(|number| Job::new("./simulate").arg(number.to_string())))?;
/// # Ok::<(), pipewright_batch::BatchError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Slurm {
    pub(super) nodes: u32,
    pub(super) arguments: Vec<OsString>,
    pub(super) over_stdio: bool,
    pub(super) address: Option<IpAddr>,
}

impl Slurm {
    /// Describes an allocation of so many nodes. Inside of an allocation, its nodes are used, and none is asked for.
    pub fn new(nodes: u32) -> Slurm {
        Slurm { nodes: nodes.max(1), arguments: Vec::new(), over_stdio: false, address: None }
    }

    /// Adds an option for `sbatch`.
    pub fn argument(mut self, argument: impl Into<OsString>) -> Slurm {
        self.arguments.push(argument.into());
        self
    }

    /// Speaks to workers over the stdin and stdout of `srun`, for nodes that cannot connect to this machine.
    pub fn over_stdio(mut self) -> Slurm {
        self.over_stdio = true;
        self
    }

    /// Sets the address at which workers connect. The default is the one that this machine has on the network of Slurm's controller.
    pub fn listen_on(mut self, address: IpAddr) -> Slurm {
        self.address = Some(address);
        self
    }
}
