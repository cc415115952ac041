//! Starts the program in its arguments with pipewright and waits for it. The benchmark measures the size of this
//! binary.

use std::process::ExitCode;

use pipewright::Command;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        return ExitCode::from(2);
    };
    match Command::new(program).args(arguments).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
