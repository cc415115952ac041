//! The workers of `docs/workers.md`, which are the examples of each client.

use std::fs;
use std::path::Path;

use pipewright::Command;
use pipewright_ipc::Pool;

use super::language::{Client, Language, clients, compile};
use crate::pool::options;

pub(super) fn the_worker_of_the_tutorial_reverses_requests(client: &Client) {
    let (file, mut command) = match client.language {
        Language::C => {
            let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pipewright-reverse-c");
            compile("c/examples/reverse.c", &["-O2"], &program);
            ("c/examples/reverse.c", Command::new(program))
        }
        Language::Python => ("python/examples/reverse.py", Command::new("python3")),
        Language::Node => ("node/examples/reverse.mjs", Command::new("node")),
    };
    let file = clients().join(file);
    if client.language != Language::C {
        command.arg(&file);
    }
    // In a program of its own, the library is beside it.
    command.env("PYTHONPATH", clients().join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    let pool = Pool::new(command, options()).unwrap();
    assert_eq!(*pool.call("hello").unwrap(), *b"olleh");
    assert_eq!(*pool.call("").unwrap(), *b"");
    pool.shut_down();
    let example = fs::read_to_string(file).unwrap().replace("../pipewright", "./pipewright");
    let (_title, code) = example.split_once('\n').unwrap();
    let tutorial = fs::read_to_string(clients().join("../docs/workers.md")).unwrap();
    assert!(tutorial.contains(code), "docs/workers.md has not this example:\n{code}");
}
