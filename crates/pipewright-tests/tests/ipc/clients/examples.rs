//! The workers of `docs/workers.md`, which are the examples of each client.

use std::fs;
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;

use pipewright::Command;
use pipewright_ipc::Pool;

use super::language::{Client, Language, clients};
use crate::pool::options;

/// Compiles an example in C.
#[cfg(unix)]
fn compiled(file: &str, name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pipewright-{name}-c"));
    super::language::compile(file, &["-O2"], &program);
    program
}

#[cfg(windows)]
fn compiled(_: &str, name: &str) -> PathBuf {
    super::language::compiled_before(name).unwrap()
}

/// Returns a pool of an example's workers. The tutorial shows the whole example.
fn pool(client: &Client, name: &str) -> Pool {
    let (file, mut command) = match client.language {
        Language::Rust => unreachable!("its examples are tested with the library"),
        Language::C => {
            let file = format!("c/examples/{name}.c");
            let program = compiled(&file, name);
            (file, Command::new(program))
        }
        Language::Python => (format!("python/examples/{name}.py"), Command::new("python3")),
        Language::Node => (format!("node/examples/{name}.mjs"), Command::new("node")),
    };
    let file = clients().join(file);
    if client.language != Language::C {
        command.arg(&file);
    }
    // In a program of its own, the library is beside it.
    command.env("PYTHONPATH", clients().join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    let example = fs::read_to_string(file).unwrap().replace("../pipewright", "./pipewright");
    let (_title, code) = example.split_once('\n').unwrap();
    let tutorial = fs::read_to_string(clients().join("../docs/workers.md")).unwrap();
    assert!(tutorial.contains(code), "docs/workers.md has not this example:\n{code}");
    Pool::new(command, options()).unwrap()
}

pub(super) fn the_worker_of_the_tutorial_reverses_requests(client: &Client) {
    let pool = pool(client, "reverse");
    assert_eq!(*pool.call("hello").unwrap(), *b"olleh");
    assert_eq!(*pool.call("").unwrap(), *b"");
    pool.shut_down();
}

pub(super) fn the_worker_of_the_tutorial_adds_up_items(client: &Client) {
    let pool = pool(client, "sum");
    let (mut items, call) = pool.begin_with_items("").unwrap();
    for item in ["hello", "", "world"] {
        items.send(item).unwrap();
    }
    items.finish();
    assert_eq!(*call.wait().unwrap(), *b"10");
    pool.shut_down();
}
