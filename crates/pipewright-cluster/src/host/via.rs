//! Workers over the stdio of a command: `ssh host`, `docker exec -i c`, `kubectl exec -i pod --`.
//!
//! # The way of the program to a node, through a shell there
//!
//! The shell reads commands from its stdin, one line at a time, and answers each with a line. Nothing is sent before
//! the answer to the line before has come, because a shell may read ahead and would swallow it. The program is copied
//! once, under the hash of its bytes. The folder and the file have to belong to the user of the shell, and nobody else
//! may write to them: where the cache folder is shared, another user could put his program there. The shell enters the
//! folder before it looks, and stays there up to the start: who owns the folder above could put another one in its
//! place. The program checks its own bytes when it starts.
//!
//! A login may print greetings, with a newline at their end or without, and may echo what it reads. So an answer has a
//! mark that nobody can guess, which the shell puts together of two parts; and what the shell's commands print goes to
//! stderr.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pipewright::{Child, Command, Contain, Scope, Stdio};
use pipewright_batch::shell_quoted;

use super::link::{Connect, Connected};
use super::reports::{Origin, Reports};
use crate::error::RemoteError;
use crate::program::Program;
use crate::wire::hello::greet_worker;

/// The time without any byte in which a command has to reach its node, and to start the worker there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The end of the command's stderr that is kept for messages.
const KEPT_BYTES: usize = 4096;

/// The way of the worker's program to a node.
#[derive(Debug, Clone)]
pub(super) enum Delivery {
    /// A shell there gets a copy of this program.
    Copy(Arc<Program>),
    /// The node has it under this path.
    Path(PathBuf),
    /// The command itself starts the worker.
    Complete,
}

/// A node that a command reaches.
#[derive(Debug)]
pub(super) struct Via {
    pub(super) words: Vec<OsString>,
    pub(super) delivery: Delivery,
    /// The number of jobs at once. `None`: the worker decides.
    pub(super) slots: Option<u32>,
    pub(super) reports: Arc<Reports>,
    pub(super) origin: Origin,
    pub(super) running: Mutex<Option<Running>>,
    /// The name for messages. `None`: the command.
    pub(super) name: Option<String>,
}

/// A started command.
#[derive(Debug)]
pub(super) struct Running {
    child: Arc<Child>,
    stderr: Option<thread::JoinHandle<Vec<u8>>>,
}

impl Via {
    fn args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["worker".into(), "--stdio".into()];
        if let Some(slots) = self.slots {
            args.extend(["--slots".into(), slots.to_string().into()]);
        }
        args
    }

    fn command(&self) -> Option<Command> {
        let (program, words) = self.words.split_first()?;
        let mut command = Command::new(program);
        command.args(words);
        match &self.delivery {
            Delivery::Copy(_) => command.arg("sh"),
            Delivery::Path(path) => command.arg(path).args(self.args()),
            Delivery::Complete => &mut command,
        };
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for the batch, and a question at the terminal would disturb it.
            .own_session()
            .contain(Contain::Tree)
            .kill_on_parent_exit(Scope::Tree);
        Some(command)
    }
}

impl Connect for Via {
    fn label(&self) -> String {
        let command = || String::from_utf8_lossy(&shell_quoted(&self.words)).into_owned();
        self.name.clone().unwrap_or_else(command)
    }

    fn origin(&self) -> Origin {
        self.origin
    }

    fn connect(&self) -> Result<Connected, RemoteError> {
        let mut command = self.command().ok_or(RemoteError::Garbled("an empty command"))?;
        let mut child = command.spawn().map_err(|error| RemoteError::Command(error.to_string()))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stderr = child.stderr.take().map(|mut stderr| {
            thread::Builder::new().stack_size(128 << 10).spawn(move || {
                let (mut tail, mut buffer) = (Vec::new(), [0; KEPT_BYTES]);
                // An error is the end, too.
                while let Ok(count @ 1..) = stderr.read(&mut buffer) {
                    tail.extend_from_slice(&buffer[..count]);
                    let surplus = tail.len().saturating_sub(KEPT_BYTES);
                    tail.drain(..surplus);
                }
                tail
            })
        });
        let child = Arc::new(child);
        let running = Running { child: Arc::clone(&child), stderr: stderr.transpose()? };
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        let (Some(writer), Some(reader)) = (stdin, stdout) else {
            return Err(RemoteError::Closed);
        };
        let close: super::link::Closer = Arc::new(move || {
            // One that has ended is no error, and its user does not change.
            let _ = child.kill();
        });
        let bytes = Arc::new(AtomicU64::new(0));
        let mut reader = Counted { stream: reader, bytes: Arc::clone(&bytes) };
        let mut writer = Counted { stream: writer, bytes: Arc::clone(&bytes) };
        let _watchdog = Watchdog::start(&self.reports, &close, bytes)?;
        if let Delivery::Copy(program) = &self.delivery {
            let args = String::from_utf8_lossy(&shell_quoted(&self.args())).into_owned();
            start_worker(&mut reader, &mut writer, program, &args, &Mark::random()?)?;
        }
        greet_worker(&mut reader, &mut writer, None, true)?;
        let (reader, writer) = (reader.stream, writer.stream);
        Ok(Connected { reader: Box::new(reader), writer: Box::new(writer), close })
    }

    fn disconnected(&self) -> Option<String> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let Running { child, stderr } = running;
        // Ignored: it has ended, or is dropped below with everything that it has started.
        let _ = child.kill();
        drop(child);
        // A panic there has been printed.
        let tail = stderr.and_then(|stderr| stderr.join().ok()).unwrap_or_default();
        let tail = String::from_utf8_lossy(&tail);
        let last = tail.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        Some(last.chars().take(200).collect())
    }
}

/// A stream whose bytes are counted.
struct Counted<S> {
    stream: S,
    bytes: Arc<AtomicU64>,
}

impl<S> Counted<S> {
    fn count(&self, done: io::Result<usize>) -> io::Result<usize> {
        let count = *done.as_ref().unwrap_or(&0);
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        done
    }
}

impl<S: Read> Read for Counted<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let done = self.stream.read(buffer);
        self.count(done)
    }
}

impl<S: Write> Write for Counted<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.stream.write(bytes);
        self.count(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Kills a command that makes no progress while it connects, or whose batch ends meanwhile.
struct Watchdog {
    _done: mpsc::Sender<()>,
}

impl Watchdog {
    fn start(
        reports: &Arc<Reports>,
        close: &super::link::Closer,
        bytes: Arc<AtomicU64>,
    ) -> io::Result<Watchdog> {
        let (sender, done) = mpsc::channel();
        let (reports, close) = (Arc::clone(reports), Arc::clone(close));
        thread::Builder::new().stack_size(64 << 10).spawn(move || {
            let (mut left, mut before) = (CONNECT_TIMEOUT, 0);
            let step = Duration::from_millis(100);
            while !left.is_zero() && !reports.is_closed() {
                match done.recv_timeout(step) {
                    Err(RecvTimeoutError::Timeout) => left = left.saturating_sub(step),
                    _ => return,
                }
                let now = bytes.load(Ordering::Relaxed);
                if std::mem::replace(&mut before, now) != now {
                    left = CONNECT_TIMEOUT;
                }
            }
            close();
        })?;
        Ok(Watchdog { _done: sender })
    }
}

/// Bytes that a shell may print before an answer.
const MOST_NOISE_BYTES: usize = 64 << 10;

/// The mark of the answers of one connection, in two parts.
#[derive(Debug)]
pub(super) struct Mark([String; 2]);

impl Mark {
    /// Returns a mark that nobody can guess.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(super) fn random() -> std::io::Result<Mark> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let (first, second) = digits.split_at(digits.len() / 2);
        Ok(Mark([format!("pipewright-{first}"), format!("{second}-")]))
    }

    fn whole(&self) -> String {
        self.0.concat()
    }
}

/// Makes a shell on a node run the worker. Its hello follows on the same stream.
///
/// # Errors
/// The node has no shell, or another system, or the program cannot be stored there.
fn start_worker(
    reader: &mut impl Read,
    writer: &mut impl Write,
    program: &Program,
    args: &str,
    mark: &Mark,
) -> Result<(), RemoteError> {
    let hash = program.hash();
    let Mark([first, second]) = mark;
    // An installed program of this version is not looked for: another build of it may differ.
    writeln!(
        writer,
        "exec 3>&1 1>&2; m={first}; n={second}; say() {{ echo \"$m$n$1\" >&3; }}; \
         o=$PWD; d=\"${{XDG_CACHE_HOME:-$HOME/.cache}}/pipewright\"; f=./worker-{hash}; \
         own() {{ set -- $(LC_ALL=C ls -ldn \"$1\" 2>/dev/null); \
         case \"$1\" in ?????[!w]??[!w]*) [ \"$3\" = \"$(id -u)\" ];; *) false;; esac; }}; \
         enter() {{ CDPATH= cd -P -- \"$d\" && own .; }}; \
         if [ -e \"$d\" ] && ! enter; then say foreign; \
         elif [ -x \"$f\" ] && own \"$f\"; then say has; \
         else say \"lacks $(uname -s) $(uname -m)\"; fi"
    )?;
    writer.flush()?;
    let answer = read_answer(reader, mark)?;
    if answer == "foreign" {
        return Err(RemoteError::Command(
            "the cache folder of the node belongs to another user, or others may write to it: \
             remove it, or give --worker-path"
                .to_owned(),
        ));
    }
    if let Some(system) = answer.strip_prefix("lacks") {
        check_system(system.trim())?;
        copy(reader, writer, program, mark)?;
    }
    // Not by the shell itself: bash makes the path absolute, and so looks it up by the names of the folders.
    writeln!(writer, "exec env PWD=\"$o\" \"$f\" {args} --sum {hash} --directory \"$o\" >&3 3>&-")?;
    writer.flush()?;
    Ok(())
}

fn copy(
    reader: &mut impl Read,
    writer: &mut impl Write,
    program: &Program,
    mark: &Mark,
) -> Result<(), RemoteError> {
    let length = program.bytes().len();
    writeln!(
        writer,
        "umask 077; if mkdir -p -- \"$d\" && enter && t=$(mktemp ./.worker-XXXXXX); then say send; \
         head -c {length} > \"$t\" && [ \"$(wc -c < \"$t\")\" -eq {length} ] && \
         chmod 700 \"$t\" && mv -f \"$t\" \"$f\" \
         && say has || {{ rm -f \"$t\"; say failed; }}; else say failed; fi"
    )?;
    writer.flush()?;
    let stored = match read_answer(reader, mark)?.as_str() {
        "send" => {
            writer.write_all(program.bytes())?;
            writer.flush()?;
            read_answer(reader, mark)? == "has"
        }
        _ => false,
    };
    match stored {
        true => Ok(()),
        false => Err(RemoteError::Command(
            "the program cannot be stored in the cache folder of the node".to_owned(),
        )),
    }
}

/// Refuses a node on which this program cannot run.
fn check_system(system: &str) -> Result<(), RemoteError> {
    let own = own_system();
    if system == own {
        return Ok(());
    }
    Err(RemoteError::Command(format!(
        "the node is {system}, and this program is built for {own}: give the path of a program there with --worker-path"
    )))
}

/// Returns this system in the words of `uname`.
fn own_system() -> String {
    let system = match std::env::consts::OS {
        "linux" => "Linux",
        "macos" => "Darwin",
        other => other,
    };
    let processor = match (system, std::env::consts::ARCH) {
        ("Darwin", "aarch64") => "arm64",
        (_, other) => other,
    };
    format!("{system} {processor}")
}

/// Reads lines until one has the mark, and returns what follows it there.
fn read_answer(reader: &mut impl Read, mark: &Mark) -> Result<String, RemoteError> {
    let mark = mark.whole();
    let (mut line, mut last) = (Vec::new(), String::new());
    let mut total = 0;
    loop {
        let mut byte = [0];
        // What follows an answer belongs to somebody else, so no byte may be read ahead. There are few of these lines.
        let is_end = match reader.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        total += 1;
        if !is_end && byte[0] != b'\n' && total < MOST_NOISE_BYTES {
            line.push(byte[0]);
            continue;
        }
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        line.clear();
        if let Some((_, answer)) = text.split_once(&mark) {
            return Ok(answer.to_owned());
        }
        if !text.is_empty() {
            last = text.chars().take(200).collect();
        }
        if is_end || total >= MOST_NOISE_BYTES {
            return Err(RemoteError::NotPipewright(last));
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
