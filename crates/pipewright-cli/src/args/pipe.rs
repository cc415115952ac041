//! Options of `pipe`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::common::CommonOptions;
use super::headings;

/// Options of `pipe`.
#[derive(Debug, Args)]
#[command(override_usage = "pipewright pipe [OPTIONS] [--] ['<' FILE] <CMD> [ARGS]... ['|' <CMD> [ARGS]...]... ['>' FILE]",
after_long_help = concat!(
    "Quote the operators for the shell: '|' between commands, '<' FILE before the first command, and\n",
    "'>' FILE or '>>' FILE (append) after the last. To pass such a word as an argument, put a\n",
    "backslash before it: '\\|', '\\<', '\\>', '\\>>'. Only one backslash is removed: '\\\\|' passes '\\|'.\n",
    "Other operators of a shell, such as '&&' and '2>&1', are arguments. A hint says so, unless they have\n",
    "a backslash.\n",
    "\n",
    "The pipeline fails if a command fails, with the exit code of the last one that failed. A command\n",
    "killed by SIGPIPE because its reader had stopped reading does not count as failed.\n",
    "\n",
    "Durations: 200ms, 1.5s, 2m, 1h30m; a bare number is seconds. Sizes: 4096, 64k, 1MiB.\n",
    "\n",
    "Exit codes:\n",
    "  N      exit code of the pipeline\n",
    "  124    stopped by --timeout, --idle-timeout or --limit\n",
    "  125    pipewright itself failed: wrong usage, output or report not written\n",
    "  126    a command is not executable\n",
    "  127    a command was not found\n",
    "  128+N  a command was killed by signal N\n",
    "\n",
    "Environment variables:\n",
    "  PATH   directories to search for the commands; --env PATH=... replaces it\n",
    "\n",
    "Examples:\n",
    "  pipewright pipe --timeout 10m -- pg_dump shop '|' zstd '>' shop.sql.zst\n",
    "  pipewright pipe --report - -- '<' access.log grep ' 500 ' '|' sort '|' uniq -c '>' errors.txt",
))]
pub(crate) struct PipelineOptions {
    #[command(flatten)]
    pub(crate) common: CommonOptions,

    /// Exit with the code of the last command, even if others fail
    #[arg(long, help_heading = headings::REPORTING)]
    pub(crate) no_pipefail: bool,

    /// Commands and their arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD",
          value_hint = ValueHint::CommandWithArguments)]
    pub(crate) words: Vec<OsString>,
}
