//! Redirect a program's streams: to files, the null device, the console or another program.
//!
//! `cargo run --example redirect`

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;

use pipewright::{Command, Handle, HandleKind, PipeOptions, Stdio};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("pipewright-redirect-{}", std::process::id()));
    let done = redirect(&path);
    fs::remove_file(&path)?;
    done
}

fn redirect(path: &Path) -> Result<(), Box<dyn Error>> {
    // To a file that is created or truncated, and from one.
    Command::new("echo").arg("into a file").stdout(Stdio::create(path)).run()?;
    let text = Command::new("cat").stdin(Stdio::open(path)).read()?;
    println!("from a file: {text}");

    // One open file for both streams: the output keeps its order.
    let log = File::create(path)?;
    let mut command = Command::new("sh");
    command.args(["-c", "echo out; echo err >&2; echo out again"]);
    command.stdout(log.try_clone()?).stderr(log).run()?;
    println!("both in one file: {:?}", fs::read_to_string(path)?);

    // Discarded: by `Stdio::null`, or by a handle to the null device.
    Command::new("echo").arg("discarded").stdout(Stdio::null()).run()?;
    Command::new("echo").arg("discarded").stdout(pipewright::null()?).run()?;

    // To this process's own streams, here stdout and stderr.
    Command::new("echo").arg("on our stdout").stdout(pipewright::console_out()?).run()?;
    Command::new("cat").stdin(pipewright::null()?).stdout(pipewright::console_err()?).run()?;

    // From one program to the next by a kernel pipe: no data passes through this process.
    let (reader, writer) = pipewright::pipe(PipeOptions::default())?;
    let mut producer = Command::new("sh");
    producer.args(["-c", "echo pear; echo apple"]).stdout(writer);
    let mut consumer = Command::new("sort");
    consumer.stdin(reader);
    let process = producer.start()?;
    // The command keeps its handles open, and the reader sees no end while a writer is open.
    drop(producer);
    println!("sorted: {:?}", consumer.read()?);
    println!("the first program: {:?}", process.wait()?.status);

    // The kind of object that a handle refers to.
    let (reader, _writer) = pipewright::pipe(PipeOptions::default())?;
    let kinds = [
        (Handle::from(reader), HandleKind::Pipe),
        (Handle::from(File::open(path)?), HandleKind::File),
        (Handle::from(File::open(std::env::temp_dir())?), HandleKind::Directory),
        (pipewright::null()?, HandleKind::CharDevice),
    ];
    for (handle, expected) in kinds {
        assert_eq!(handle.kind()?, expected);
        println!("{handle:?} is a {}", handle.kind()?);
    }
    Ok(())
}
