//! Options of `pipe`.

use std::ffi::OsString;

use clap::Args;

use super::common::CommonOptions;

/// Options of `pipe`.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "The words of the pipeline are separate arguments, so those with a meaning have to be quoted for\n",
    "the shell: '|' between two commands; '<' FILE before the first; '>' FILE or '>>' FILE (append)\n",
    "after the last. Where such a word is meant as it is, write '\\|', '\\<', '\\>' or '\\>>';\n",
    "with another backslash, '\\\\|', it is the word '\\|'.\n",
    "\n",
    "The pipeline fails where a command does, and has the code of the last one that did. A command\n",
    "that ended by SIGPIPE, as its reader had read all that it wanted, has not failed.\n",
    "\n",
    "Exit codes:\n",
    "  that of the pipeline, or\n",
    "  124    stopped by us: --timeout, --idle-timeout or --limit\n",
    "  125    pipewright itself failed; also to pass the output on, or to write the report\n",
    "  126    a command was found and could not be executed\n",
    "  127    a command was not found\n",
    "  128+N  ended by signal N\n",
    "\n",
    "Durations are written 200ms, 1.5s, 2m; sizes 64k, 1MiB.\n",
    "\n",
    "Examples:\n",
    "  pipewright pipe --timeout 10m -- pg_dump shop '|' zstd '>' shop.sql.zst\n",
    "  pipewright pipe --report - -- '<' access.log grep ' 500 ' '|' sort '|' uniq -c '>' errors.txt",
))]
pub(crate) struct PipeOptions {
    #[command(flatten)]
    pub(crate) common: CommonOptions,

    /// Take the last command's code, whatever the others do
    #[arg(long)]
    pub(crate) no_pipefail: bool,

    /// The commands and their arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) words: Vec<OsString>,
}
