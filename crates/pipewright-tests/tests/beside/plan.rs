//! A case: a script, the settings of its command, and the way to run it.

use std::sync::Arc;
use std::time::Duration;

use pipewright::{CancelToken, Command, Contain, Limit, Linger, Scope, Stdio, TreeSlot};
use pipewright_tests::pace;

use super::script::{End, Random, Script};
use super::{stops, streams, verbs};

/// A way to run a command.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Plan) -> Result<super::seen::Seen, pipewright::Error>,
    /// The kinds of text that scripts may write: see `Said::new`.
    pub(crate) kinds: &'static str,
    /// The needs and abilities of the way, a letter each.
    pub(crate) traits: &'static str,
}

impl Way {
    pub(crate) fn has(&self, letter: char) -> bool {
        self.traits.contains(letter)
    }
}

/// The source of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    Bytes,
    Reader,
    File,
}

/// Something that stops a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    None,
    Timeout,
    Deadline,
    Idle,
    Cancel,
    Drop,
}

/// A case.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) way: &'static Way,
    pub(crate) script: Script,
    pub(crate) input: Input,
    pub(crate) limit: Option<(char, usize)>,
    pub(crate) max_line: Option<usize>,
    pub(crate) linger: char,
    pub(crate) contain: char,
    pub(crate) stop: Stop,
    /// The time until it is stopped, in milliseconds.
    pub(crate) after: u64,
    pub(crate) merges: bool,
    pub(crate) in_background: bool,
    pub(crate) coalesces: bool,
    /// A number for the way's own choices.
    pub(crate) choice: usize,
    pub(crate) folder: Arc<tempfile::TempDir>,
    pub(crate) number: u64,
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns all ways.
fn ways() -> impl ExactSizeIterator<Item = &'static Way> + Clone {
    const ALL: [&[Way]; 3] = [verbs::WAYS, streams::WAYS, stops::WAYS];
    let count: usize = ALL.iter().map(|it| it.len()).sum();
    (0..count).map(|mut index| {
        for list in ALL {
            match list.get(index) {
                Some(way) => return way,
                None => index -= list.len(),
            }
        }
        unreachable!("the index is below the sum")
    })
}

impl Plan {
    /// Makes a case, by a seed and its number.
    pub(crate) fn new(seed: u64, number: u64, folder: &Arc<tempfile::TempDir>) -> Plan {
        let mut random = Random::of(seed, number);
        let count = ways().len();
        let way = ways().nth(random.below(count)).expect("the index is below the count");
        let stop = if way.has('d') {
            Stop::Drop
        } else if way.has('s') && random.one_in(8) {
            random.pick(&[Stop::Timeout, Stop::Timeout, Stop::Deadline, Stop::Idle, Stop::Cancel])
        } else {
            Stop::None
        };
        let mut script = match stop {
            Stop::None => Script::ending(&mut random, way.kinds),
            _ => Script::endless(&mut random, way.kinds),
        };
        // Only silence is idle.
        let stop = match script.end {
            End::Never { writes: true } if stop == Stop::Idle => Stop::Timeout,
            _ => stop,
        };
        while way.has('t') && script.merged.len() > 1 << 20 {
            script = match stop {
                Stop::None => Script::ending(&mut random, way.kinds),
                _ => Script::endless(&mut random, way.kinds),
            };
        }
        if way.has('t') {
            script.without_reads();
        } else if way.has('i') {
            script.without_input();
        }
        let merges = way.has('m') && random.one_in(6);
        let around =
            [script.streams[0].len(), script.streams[1].len(), script.merged.len(), 65_536];
        let limit_bytes = (random.pick(&around) + random.below(3)).saturating_sub(1);
        let limits = if script.late { &['h', 't', 'h'] } else { &['h', 't', 'f'] };
        let limit = (way.has('l') && random.one_in(3)).then(|| (random.pick(limits), limit_bytes));
        let max_line = (way.has('x') && script.kind != 'b' && random.one_in(3))
            .then(|| random.pick(&[0, 1, 5, 80, 4096]))
            .filter(|_| limit.is_none());
        Plan {
            way,
            input: random.pick(&[Input::Bytes, Input::Bytes, Input::Reader, Input::File]),
            limit,
            max_line,
            linger: random.pick(&['d', 'd', 'u', 'e']),
            contain: random.pick(if way.has('c') {
                &['n', 'n', 'n', 'g', 't', 's', 'p', 'l']
            } else {
                &['n']
            }),
            stop,
            after: random.pick(&[0, 1, 5, 20, 50]),
            merges,
            in_background: way.has('b') && random.one_in(5),
            coalesces: random.one_in(6),
            choice: random.below(1 << 20),
            script,
            folder: Arc::clone(folder),
            number,
        }
    }

    /// Returns a path for this case.
    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(format!("{}-{name}", self.number))
    }

    /// Returns the command, with its input and settings.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_puppet"));
        command.arg(self.script.act());
        if self.way.has('o') {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        if !self.way.has('i') {
            let input = self.script.input.clone();
            command.stdin(match self.input {
                Input::Bytes => Stdio::bytes(input),
                Input::Reader => Stdio::reader(Pieces { bytes: input, at: 0, step: self.choice }),
                Input::File => {
                    std::fs::write(self.path("in"), input).expect("a file for the input");
                    Stdio::open(self.path("in"))
                }
            });
        }
        if self.merges {
            command.merge_stderr();
        }
        match self.contain {
            'g' => _ = command.contain(Contain::Group),
            't' => _ = command.contain(Contain::Tree),
            'p' => _ = command.kill_on_parent_exit(Scope::Tree),
            'l' => _ = command.limits(pipewright::Limits::new().pids_max(1000).best_effort()),
            _ => {}
        }
        command
    }

    /// Returns the command in a slot, if it is to run in one; the slot has to live as long as it runs.
    pub(crate) fn command_in(&self, slot: &Option<TreeSlot>) -> Command {
        let mut command = self.command();
        if let Some(slot) = slot {
            command.contain_in(slot);
        }
        self.set(&mut command);
        command
    }

    pub(crate) fn slot(&self) -> Result<Option<TreeSlot>, pipewright::Error> {
        (self.contain == 's').then(TreeSlot::new).transpose()
    }

    /// Returns a token that is cancelled in time, if that is what stops the run.
    pub(crate) fn token(&self) -> Option<CancelToken> {
        let token = (self.stop == Stop::Cancel).then(CancelToken::new)?;
        let (later, after) = (token.clone(), pace::millis(self.after));
        std::thread::spawn(move || {
            std::thread::park_timeout(after);
            later.cancel();
        });
        Some(token)
    }

    /// Returns true if the settings hold everything that the script leaves.
    pub(crate) fn holds_tree(&self) -> bool {
        matches!(self.contain, 't' | 's' | 'p' | 'l')
    }
}

/// The settings of a whole run, which commands and pipelines have.
macro_rules! set {
    ($plan:expr, $to:expr) => {{
        let (plan, to): (&Plan, _) = ($plan, $to);
        match plan.limit {
            Some(('h', bytes)) => _ = to.limit(Limit::keep_head(bytes)),
            Some(('t', bytes)) => _ = to.limit(Limit::keep_tail(bytes)),
            Some((_, bytes)) => _ = to.limit(Limit::fail(bytes)),
            None => {}
        }
        if let Some(bytes) = plan.max_line {
            to.max_line(bytes);
        }
        match plan.linger {
            'u' => _ = to.linger(Linger::UntilEof),
            'e' => _ = to.linger(Linger::StopAtExit),
            _ => {}
        }
        if plan.in_background {
            to.enforce_in_background();
        }
        if plan.coalesces {
            to.coalesce_reads();
        }
        let after = pace::millis(plan.after);
        match plan.stop {
            Stop::Timeout => _ = to.timeout(after),
            Stop::Deadline => _ = to.deadline(std::time::Instant::now() + after),
            Stop::Idle => _ = to.idle_timeout(after),
            _ => {}
        }
        if let Some(token) = plan.token() {
            to.cancel(&token);
        }
        if plan.stop == Stop::None && plan.choice % 5 == 0 {
            to.timeout(Duration::from_secs(3600));
        }
        to.kill_grace(pace::millis(if plan.choice % 3 == 0 { 0 } else { 30 }));
    }};
}

impl Plan {
    pub(crate) fn set(&self, command: &mut Command) {
        set!(self, command);
    }

    pub(crate) fn set_all(&self, pipeline: &mut pipewright::Pipeline<'_>) {
        set!(self, pipeline);
    }
}

/// Input that comes in pieces.
struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    step: usize,
}

impl std::io::Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = self.bytes.len() - self.at;
        let count = left.min(buffer.len()).min([1 << 20, 4096, 65_536, 700][self.step % 4]);
        buffer[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
