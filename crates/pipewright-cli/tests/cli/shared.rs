//! Helpers that the tests of the tool share: a directory of jobs, the times of a slow machine, random numbers, and an
//! end for tests that hang.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use super::pipewright;

/// A directory that jobs run in.
pub(super) struct Place(tempfile::TempDir);

impl Place {
    pub(super) fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Copies a program, by a process of its own. Returns false if it cannot be copied.
    ///
    /// A file that this process writes to is open in each child that another test starts meanwhile, until its exec, and
    /// a program that is open for writing cannot be executed.
    #[cfg(target_os = "linux")]
    pub(super) fn copy_program(&self, from: &str, name: &str) -> bool {
        let copied = Command::new("cp").arg(from).arg(self.path(name)).output();
        copied.unwrap().status.success()
    }

    /// Writes a program, in the same way.
    #[cfg(target_os = "linux")]
    pub(super) fn write_program(&self, name: &str, text: &str) {
        let script = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(self.path(name)).arg(text);
        assert!(shell.status().unwrap().success());
    }

    /// Returns the text of a file, or nothing if there is none.
    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Returns the lines of a file, sorted.
    pub(super) fn lines(&self, name: &str) -> Vec<String> {
        sorted(&self.read(name))
    }

    /// Returns the tool in this directory, not yet started.
    pub(super) fn tool(&self, args: &[&str]) -> Command {
        let mut command = pipewright(args);
        command.current_dir(self.0.path());
        command
    }

    /// Runs `batch` without progress.
    pub(super) fn batch(&self, args: &[&str]) -> Output {
        self.tool(&[&["batch", "--progress", "none"], args].concat()).output().unwrap()
    }
}

pub(super) fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    lines.sort();
    lines
}

/// The times of a slow machine, as in the suites of the libraries, and reports of skipped tests.
pub(super) mod pace {
    use std::time::Duration;

    pub(crate) use pipewright_os::base::skipped::{Need, skipped};

    /// Returns that many milliseconds, times the factor `PIPEWRIGHT_TEST_SCALE`, a whole number.
    pub(crate) fn millis(millis: u64) -> Duration {
        let factor = match std::env::var("PIPEWRIGHT_TEST_SCALE") {
            Ok(text) => text.parse::<u32>().ok().filter(|factor| (1..=1000).contains(factor)),
            Err(_) => Some(1),
        };
        Duration::from_millis(millis)
            * factor.expect("PIPEWRIGHT_TEST_SCALE is a whole number from 1 to 1000")
    }

    /// Returns true, with a message, if this system does not have that file.
    #[cfg(unix)]
    pub(crate) fn lacks(file: &str) -> bool {
        let is_there = std::path::Path::new(file).exists();
        if !is_there {
            skipped(Need::File(file), "is not here");
        }
        !is_there
    }

    /// Returns true, with a message, on a system that does not tell what a test needs to know about other processes.
    #[cfg(unix)]
    pub(crate) fn lacks_proc() -> bool {
        lacks("/proc/self/stat")
    }

    /// Returns it as the value of an option.
    #[cfg(unix)]
    pub(crate) fn option(millis: u64) -> String {
        format!("{}ms", self::millis(millis).as_millis())
    }

    /// Runs what has a time limit with that many milliseconds, and then with more and more, until it returns something:
    /// on a busy machine a limit may be over before the command has come to the part that the test is about.
    #[cfg(unix)]
    #[track_caller]
    pub(crate) fn in_time<T>(millis: u64, run: impl Fn(u64) -> Option<T>) -> T {
        let mut longer = (0..5).map(|turn| millis << (2 * turn));
        longer.find_map(run).expect("the command comes to its part in time")
    }
}

/// Random numbers that a seed repeats.
#[cfg(unix)]
pub(super) mod random {
    use std::env;

    /// Numbers from a seed (splitmix64).
    pub(crate) struct Random(u64);

    impl Random {
        /// Returns the numbers of a seed.
        pub(crate) fn of(seed: u64) -> Random {
            Random(seed)
        }

        /// Returns a number below `end`.
        pub(crate) fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ (mixed >> 31)) % end
        }

        /// Returns true in one of `of` cases.
        pub(crate) fn one_in(&mut self, of: u64) -> bool {
            self.below(of) == 0
        }

        /// Returns one of several.
        pub(crate) fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
            from[self.below(from.len() as u64) as usize]
        }
    }

    /// Returns the seed in `PIPEWRIGHT_TEST_SEED`, which repeats a run that failed, or else `default`.
    pub(crate) fn seed(default: u64) -> u64 {
        number("PIPEWRIGHT_TEST_SEED").unwrap_or(default)
    }

    pub(crate) fn number(variable: &str) -> Option<u64> {
        let text = env::var(variable).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
    }
}

/// The end of a test that hangs, with everything that it has started.
#[cfg(unix)]
pub(super) mod watchdog {
    use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
    use std::thread::{self, JoinHandle};

    use super::pace;

    /// Ends the process with a message if it is not dropped in time.
    ///
    /// A failed assertion would not do: the thread of the test waits for a child.
    pub(crate) struct Watchdog {
        sender: Option<Sender<()>>,
        thread: Option<JoinHandle<()>>,
    }

    impl Watchdog {
        /// Watches the calling test for `seconds`, on a machine that is not slow.
        pub(crate) fn start(seconds: u64) -> Watchdog {
            let name = thread::current().name().unwrap_or("a test").to_owned();
            let (sender, receiver): (Sender<()>, Receiver<()>) = channel();
            let limit = pace::millis(seconds * 1000);
            let thread = thread::spawn(move || {
                if receiver.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                    eprintln!("{name} has taken {limit:?}, and is ended");
                    std::process::abort();
                }
            });
            Watchdog { sender: Some(sender), thread: Some(thread) }
        }
    }

    impl Drop for Watchdog {
        fn drop(&mut self) {
            drop(self.sender.take());
            // Ignored: the thread does not panic.
            let _ = self.thread.take().map(JoinHandle::join);
        }
    }
}
