//! The tasks of a child process, and the command line that states them.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

use pipewright::Command;

use super::NAME;
use super::packets::PacketSizes;

/// The task of a child process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChildTask {
    /// Exit.
    Exit,
    /// For each number read from stdin, write that many blocks to stdout, then the used CPU time to stderr.
    Write { block_bytes: usize, processor: Option<usize>, verify: bool },
    /// Print that many lines, with one write each or with one for all.
    Lines { count: usize, one_write: bool },
    /// Write that many bytes.
    Flood { bytes: u64 },
    /// Copy stdin to stdout, block by block.
    Echo { block_bytes: usize, processor: Option<usize> },
    /// For each request from a channel, send that many messages, then the used CPU time.
    IpcSend { packets: PacketSizes, processor: Option<usize>, verify: bool },
    /// Send back each message from a channel.
    IpcEcho { processor: Option<usize>, spins: bool },
}

impl ChildTask {
    /// Returns a command that does it.
    pub(crate) fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(program()?);
        command.arg(NAME).args(self.words());
        Ok(command)
    }

    /// Returns a command of std that does it.
    pub(crate) fn bare_command(&self) -> io::Result<std::process::Command> {
        let mut command = std::process::Command::new(program()?);
        command.arg(NAME).args(self.words());
        Ok(command)
    }

    fn words(&self) -> Vec<String> {
        fn words(name: &str, values: &[&dyn ToString]) -> Vec<String> {
            let values = values.iter().map(|value| value.to_string());
            std::iter::once(name.to_owned()).chain(values).collect()
        }
        let on = |processor: &Option<usize>| processor.map_or("-".to_owned(), |it| it.to_string());
        match self {
            ChildTask::Exit => words("exit", &[]),
            ChildTask::Write { block_bytes, processor, verify } => {
                words("write", &[block_bytes, &on(processor), verify])
            }
            ChildTask::Lines { count, one_write } => words("lines", &[count, one_write]),
            ChildTask::Flood { bytes } => words("flood", &[bytes]),
            ChildTask::Echo { block_bytes, processor } => {
                words("echo", &[block_bytes, &on(processor)])
            }
            ChildTask::IpcSend { packets: PacketSizes { bytes, mixed }, processor, verify } => {
                words("ipc-send", &[bytes, mixed, &on(processor), verify])
            }
            ChildTask::IpcEcho { processor, spins } => words("ipc-echo", &[&on(processor), spins]),
        }
    }

    pub(super) fn parse(words: &[&str]) -> Option<ChildTask> {
        fn on(word: &str) -> Option<Option<usize>> {
            if word == "-" { Some(None) } else { word.parse().ok().map(Some) }
        }
        Some(match words {
            ["exit"] => ChildTask::Exit,
            ["write", block, processor, verify] => ChildTask::Write {
                block_bytes: block.parse().ok()?,
                processor: on(processor)?,
                verify: verify.parse().ok()?,
            },
            ["lines", count, one_write] => {
                ChildTask::Lines { count: count.parse().ok()?, one_write: one_write.parse().ok()? }
            }
            ["flood", bytes] => ChildTask::Flood { bytes: bytes.parse().ok()? },
            ["echo", block, processor] => {
                ChildTask::Echo { block_bytes: block.parse().ok()?, processor: on(processor)? }
            }
            ["ipc-send", bytes, mixed, processor, verify] => ChildTask::IpcSend {
                packets: PacketSizes { bytes: bytes.parse().ok()?, mixed: mixed.parse().ok()? },
                processor: on(processor)?,
                verify: verify.parse().ok()?,
            },
            ["ipc-echo", processor, spins] => {
                ChildTask::IpcEcho { processor: on(processor)?, spins: spins.parse().ok()? }
            }
            _ => return None,
        })
    }
}

/// Returns the running program. Cached, so that looking it up is not part of a measured start.
fn program() -> io::Result<&'static PathBuf> {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    match PROGRAM.get() {
        Some(program) => Ok(program),
        None => {
            let found = std::env::current_exe()?;
            Ok(PROGRAM.get_or_init(|| found))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_parsed_from_its_own_command_line() {
        for task in [
            ChildTask::Exit,
            ChildTask::Write { block_bytes: 4096, processor: Some(3), verify: true },
            ChildTask::Write { block_bytes: 1, processor: None, verify: false },
            ChildTask::Lines { count: 1000, one_write: false },
            ChildTask::Flood { bytes: 1 << 40 },
            ChildTask::Echo { block_bytes: 64, processor: Some(0) },
            ChildTask::IpcSend { packets: PacketSizes::all_of(100), processor: None, verify: true },
            ChildTask::IpcEcho { processor: Some(1), spins: false },
        ] {
            let words = task.words();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert_eq!(ChildTask::parse(&words), Some(task));
        }
        assert_eq!(ChildTask::parse(&["write", "x", "-", "true"]), None);
        assert_eq!(ChildTask::parse(&[]), None);
    }
}
