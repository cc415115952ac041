//! Options of `worker`.

use std::path::PathBuf;

use clap::Args;

/// Options of `worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerOptions {
    /// Speak to the batch over stdin and stdout
    #[arg(long, conflicts_with = "connect")]
    pub(crate) stdio: bool,

    /// Connect to the batch at the first of these addresses that answers
    #[arg(
        long,
        value_name = "ADDR:PORT,...",
        value_delimiter = ',',
        required_unless_present = "stdio"
    )]
    pub(crate) connect: Vec<std::net::SocketAddr>,

    /// Read the secret of the batch from FILE, instead of the environment
    #[arg(long, value_name = "FILE", requires = "connect")]
    pub(crate) secret_file: Option<PathBuf>,

    /// Run N jobs at once; by default as many as this process may use processors
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<u32>,

    /// Run only if this program has that hash
    #[arg(long, value_name = "HASH", hide = true)]
    pub(crate) sum: Option<String>,

    /// Work in DIR
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) directory: Option<PathBuf>,

    /// Name of this node; by default the name of the machine
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
}
