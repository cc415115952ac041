//! Send a program's streams anywhere: files, the null device, our own console, another program.
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
    // To a file that is made or emptied, and from one.
    Command::new("echo").arg("into a file").stdout(Stdio::create(path)).run()?;
    let text = Command::new("cat").stdin(Stdio::open(path)).read()?;
    println!("from a file: {text}");

    // One handle for both streams: what is written to either stays in order.
    let log = File::create(path)?;
    let mut command = Command::new("sh");
    command.args(["-c", "echo out; echo err >&2; echo out again"]);
    command.stdout(log.try_clone()?).stderr(log).run()?;
    println!("both in one file: {:?}", fs::read_to_string(path)?);

    // To nowhere: as a choice, or as a handle of ours.
    Command::new("echo").arg("unheard").stdout(Stdio::null()).run()?;
    Command::new("echo").arg("unheard").stdout(pipewright::null()?).run()?;

    // To our console, whichever stream of it.
    Command::new("echo").arg("on our stdout").stdout(pipewright::console_out()?).run()?;
    Command::new("cat").stdin(pipewright::null()?).stdout(pipewright::console_err()?).run()?;

    // From one program to the next through a pipe of the kernel: no byte passes through us.
    let (reader, writer) = pipewright::pipe(PipeOptions::default())?;
    let mut producer = Command::new("sh");
    producer.args(["-c", "echo pear; echo apple"]).stdout(writer);
    let mut consumer = Command::new("sort");
    consumer.stdin(reader);
    let process = producer.start()?;
    // The command keeps its handles, and the reader sees no end while a writer is left.
    drop(producer);
    println!("sorted: {:?}", consumer.read()?);
    println!("the first of the two: {:?}", process.wait()?.status);

    // What a handle refers to.
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
