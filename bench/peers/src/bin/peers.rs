//! Runs one case with one peer and prints a sample per operation; see `request.rs`.

use std::process::ExitCode;

fn main() -> ExitCode {
    peers::run(None)
}
