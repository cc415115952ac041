//! Run two children at once, by two tasks of one thread, and print their lines as they arrive.
//!
//! `cargo run -p pipewright --features tokio --example streams`

use std::error::Error;

use pipewright::{Command, ExitStatus, Stdio};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Builder;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut build, mut test) = (slow_echo("compiled"), slow_echo("tested"));
        let (build, test) = tokio::join!(show("build", &mut build), show("test", &mut test));
        assert!(build?.success() && test?.success());
        pipe_through_sort().await
    })
}

/// Returns a command that prints three lines, slowly.
fn slow_echo(word: &str) -> Command {
    let script = format!("for file in a b c; do echo {word} $file; sleep 0.05; done");
    Command::new("sh").args(["-c", &script]).owned()
}

/// Prints the lines of a command as they arrive.
async fn show(name: &str, command: &mut Command) -> Result<ExitStatus, pipewright::Error> {
    let mut lines = command.lines_async()?;
    while let Some(line) = lines.next().await {
        println!("{name}: {}", line?.text);
    }
    Ok(lines.finish().await?.status)
}

/// Writes to a child and reads from it with tokio's own traits.
async fn pipe_through_sort() -> Result<(), Box<dyn Error>> {
    let mut sort = Command::new("sort");
    let mut child = sort.stdin(Stdio::piped_async()).stdout(Stdio::piped()).spawn()?;
    let stdin = child.stdin.take().ok_or("its stdin is piped")?;
    let stdout = child.stdout.take().ok_or("its stdout is piped")?;
    let (mut stdin, mut stdout) = (stdin.into_async()?, stdout.into_async()?);
    let mut sorted = String::new();
    let (written, read) = tokio::join!(
        async {
            stdin.write_all(b"pear\napple\n").await?;
            stdin.shutdown().await
        },
        stdout.read_to_string(&mut sorted)
    );
    written?;
    read?;
    assert_eq!(sorted, "apple\npear\n");
    print!("{sorted}");
    assert!(child.wait_async().await?.success());
    Ok(())
}
