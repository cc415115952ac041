//! Terminals for children: `cargo run -p pipewright --features session --example terminal`.

use std::error::Error;
use std::fs::File;
use std::sync::{Arc, Mutex};

use pipewright::{CastWriter, Command, PtySize, Stdio};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let size = PtySize { rows: 24, cols: 80 };

    // Colours in the log of a build server, where no stream is a terminal.
    let script = "test -t 1 && printf '\\033[32mgreen\\033[0m\\n' || echo plain";
    let plain = Command::new("sh").args(["-c", script]).read()?;
    let coloured = Command::new("sh").args(["-c", script]).pty(size).read()?;
    assert_eq!((plain.as_str(), coloured.as_str()), ("plain", "\u{1b}[32mgreen\u{1b}[0m"));

    // Warnings apart from the output.
    let apart = Command::new("sh")
        .args(["-c", "echo out; echo warning >&2"])
        .pty(size)
        .stderr(Stdio::piped())
        .capture()?;
    assert_eq!((apart.stdout.as_str(), apart.stderr.as_str()), ("out\r\n", "warning\n"));

    // A recording, for `asciinema play`.
    let path = std::env::temp_dir().join(format!("pipewright-{}.cast", std::process::id()));
    let cast = Arc::new(Mutex::new(CastWriter::new(File::create(&path)?, size)?));
    let record = move |chunk: &[u8]| {
        // Ignored: a full disk should not end the command.
        let _ = cast.lock().map(|mut cast| cast.output(chunk));
    };
    let mut command = Command::new("sh");
    command.args(["-c", "echo recorded"]).pty(size).stdout(Stdio::tee_with(record));
    assert!(command.capture()?.success());
    let recording = std::fs::read_to_string(&path)?;
    std::fs::remove_file(path)?;
    assert_eq!(recording.lines().count(), 2);
    println!("{}", recording.trim_end());
    Ok(())
}
