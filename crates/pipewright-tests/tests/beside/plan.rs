//! A case: a random script for the puppet's act `play`, the settings of its command, and the way to run it.

use std::sync::Arc;
use std::time::Duration;

use pipewright::{CancelToken, Command, Contain, Limit, Linger, Scope, Stdio, TreeSlot};
use pipewright_tests::bodies::{self, Said};
use pipewright_tests::pace;

use crate::{streams, verbs};

/// A way to run a command.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Plan) -> Result<crate::judge::Seen, pipewright::Error>,
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
    contain: char,
    pub(crate) stop: Stop,
    /// The time until it is stopped, in milliseconds.
    pub(crate) after: u64,
    pub(crate) merges: bool,
    in_background: bool,
    coalesces: bool,
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

fn ways() -> impl ExactSizeIterator<Item = &'static Way> + Clone {
    const ALL: [&[Way]; 3] = [verbs::WAYS, streams::WAYS, streams::GIVE_UP];
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
    fn token(&self) -> Option<CancelToken> {
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

/// Sizes around every threshold: a page, a pipe, a large pipe, a buffer for reading.
const SIZES: [usize; 18] = [
    0, 1, 2, 100, 4095, 4096, 4097, 16_384, 65_535, 65_536, 65_537, 131_072, 200_000, 262_144,
    1_048_575, 1_048_576, 1_048_577, 3_000_000,
];

/// A source of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Returns the source of a case.
    pub(crate) fn of(seed: u64, number: u64) -> Random {
        let mut state = number;
        Random(seed ^ bodies::mix(&mut state))
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        (bodies::mix(&mut self.0) >> 16) as usize % most.max(1)
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// Returns a size, mostly a small one.
    fn size(&mut self) -> usize {
        match self.below(10) {
            0..4 => self.below(300),
            4..6 => self.below(100_000),
            6..9 => self.pick(&SIZES[..14]),
            _ => self.pick(&SIZES),
        }
    }
}

/// The end of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Code(i32),
    Signal(i32),
    /// Somebody has to stop it. It writes all the time, or nothing.
    Never {
        writes: bool,
    },
}

/// A script, and what it does.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) seed: u64,
    pub(crate) kind: char,
    pub(crate) ops: Vec<String>,
    pub(crate) streams: [Vec<u8>; 2],
    /// Both streams in the order of the writes.
    pub(crate) merged: Vec<u8>,
    pub(crate) input: Vec<u8>,
    /// The number of bytes of its input that it reads.
    pub(crate) read: usize,
    pub(crate) end: End,
    /// True if it leaves a process that holds its streams.
    pub(crate) holds: bool,
    /// True if that writes to stdout, later.
    pub(crate) late: bool,
}

impl Script {
    /// Makes one that ends by itself.
    pub(crate) fn ending(random: &mut Random, kinds: &str) -> Script {
        let mut script = Script::new(random, kinds);
        for _ in 0..random.below(7) {
            script.step(random);
        }
        script.leave(random);
        script.end = match random.below(8) {
            0 => End::Signal(random.pick(&[6, 9, 10, 11, 15])),
            1..4 => End::Code(random.pick(&[1, 2, 7, 77, 125, 137, 255])),
            _ => End::Code(0),
        };
        match script.end {
            End::Code(0) if random.one_in(2) => {}
            End::Code(code) => script.ops.push(format!("x{code}")),
            End::Signal(signal) => script.ops.push(format!("k{signal}")),
            End::Never { .. } => {}
        }
        script
    }

    /// Makes one that has to be stopped.
    fn endless(random: &mut Random, kinds: &str) -> Script {
        let mut script = Script::new(random, kinds);
        if random.one_in(3) {
            script.ops.push("T".to_owned());
        }
        for _ in 0..random.below(4) {
            script.step(random);
        }
        let writes = !script.closed(1) && random.one_in(2);
        script.ops.push(if writes { "y" } else { "s1000000" }.to_owned());
        script.end = End::Never { writes };
        script
    }

    fn new(random: &mut Random, kinds: &str) -> Script {
        let kinds: Vec<char> = kinds.chars().collect();
        let kind = random.pick(&kinds);
        let input_bytes = if random.one_in(2) { random.size() } else { 0 };
        let mut input = Vec::new();
        Said::new(random.below(1000) as u64, 0, kind).copy(0, input_bytes, &mut input);
        Script {
            seed: random.below(1 << 30) as u64,
            kind,
            ops: Vec::new(),
            streams: [Vec::new(), Vec::new()],
            merged: Vec::new(),
            input,
            read: 0,
            end: End::Code(0),
            holds: false,
            late: false,
        }
    }

    /// Returns the argument for the puppet.
    pub(crate) fn act(&self) -> String {
        format!("play={},{},{}", self.seed, self.kind, self.ops.join("."))
    }

    /// Returns that many bytes of what a stream would be without an end, from an offset on.
    pub(crate) fn endless_bytes(&self, stream: usize, from: usize, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        Said::new(self.seed, stream as u8 + 1, self.kind).copy(from, count, &mut bytes);
        bytes
    }

    /// Takes also away what it reads, for a terminal, where somebody would have to type.
    fn without_reads(&mut self) {
        self.without_input();
        self.ops.retain(|op| op != "R" && op != "I" && !op.starts_with('r'));
    }

    /// Takes its input away, for a way that feeds none.
    fn without_input(&mut self) {
        self.input.clear();
        self.read = 0;
        if self.ops.iter().any(|op| op == "c") {
            self.ops.retain(|op| op != "c");
            self.streams = [Vec::new(), Vec::new()];
            self.merged = Vec::new();
            let ops = std::mem::take(&mut self.ops);
            for op in ops {
                self.repeat(op);
            }
        }
    }

    /// Adds an operation again.
    fn repeat(&mut self, op: String) {
        let size = op[1..].parse().unwrap_or(0);
        match &op[..1] {
            "o" | "p" => self.write(0, size, &op),
            "e" | "q" => self.write(1, size, &op),
            "z" => self.write_in_turn(size),
            _ => self.ops.push(op),
        }
    }

    fn closed(&self, stream: usize) -> bool {
        let name = ["I", "O", "E"][stream];
        self.ops.iter().any(|op| op == name)
    }

    fn step(&mut self, random: &mut Random) {
        let size = random.size();
        let stream = random.below(2);
        match random.below(14) {
            0..5 => self.write(stream, size, &format!("{}{size}", ["o", "e"][stream])),
            5 => {
                let size = size.min(300_000);
                self.write(stream, size, &format!("{}{size}", ["p", "q"][stream]));
            }
            6 if !self.closed(1) && !self.closed(2) => self.write_in_turn(size.min(100_000)),
            7 if random.one_in(2) => {
                let stream = 1 + stream;
                if !self.closed(stream) {
                    self.ops.push(["O", "E"][stream - 1].to_owned());
                }
            }
            8 if random.one_in(3) && !self.closed(0) => self.ops.push("I".to_owned()),
            9 if !self.closed(0) => {
                let count = random.size();
                self.read = self.input.len().min(self.read + count);
                self.ops.push(format!("r{count}"));
            }
            10 if !self.closed(0) => {
                self.read = self.input.len();
                self.ops.push("R".to_owned());
            }
            11 if !self.closed(0) && !self.closed(1) => {
                let rest = self.input.get(self.read..).unwrap_or_default().to_vec();
                // After other bytes of its stream the offsets of these would be wrong.
                self.streams[0].extend_from_slice(&rest);
                self.merged.extend_from_slice(&rest);
                self.read = self.input.len();
                self.ops.push("c".to_owned());
            }
            12 => self.ops.push(format!("s{}", random.pick(&[1, 1, 2, 5, 20]))),
            _ => {}
        }
    }

    /// Leaves a process that holds the streams, or none.
    fn leave(&mut self, random: &mut Random) {
        let wait = random.pick(&[1, 5, 20, 60]);
        match random.below(16) {
            0 => {
                self.ops.push(format!("b{wait}"));
                self.holds = true;
            }
            1 if !self.closed(1) => {
                self.ops.push(format!("w{wait}"));
                (self.holds, self.late) = (true, true);
            }
            _ => {}
        }
    }

    /// Returns the number of bytes that a stream has said of itself.
    pub(crate) fn own_bytes(&self, stream: usize) -> usize {
        let letters = [["o", "p", "z"], ["e", "q", "z"]][stream];
        let said = self.ops.iter().filter(|op| letters.contains(&&op[..1]));
        said.map(|op| op[1..].parse::<usize>().unwrap_or(0)).sum()
    }

    fn write(&mut self, stream: usize, size: usize, op: &str) {
        if self.closed(stream + 1) {
            return;
        }
        let bytes = self.endless_bytes(stream, self.own_bytes(stream), size);
        self.streams[stream].extend_from_slice(&bytes);
        self.merged.extend_from_slice(&bytes);
        self.ops.push(op.to_owned());
    }

    fn write_in_turn(&mut self, size: usize) {
        let mut at = [self.own_bytes(0), self.own_bytes(1)];
        let (mut left, mut piece) = (size, 1);
        while left > 0 {
            piece = (piece * 3).min(left);
            for stream in [0, 1] {
                let bytes = self.endless_bytes(stream, at[stream], piece);
                at[stream] += piece;
                self.streams[stream].extend_from_slice(&bytes);
                self.merged.extend_from_slice(&bytes);
            }
            left -= piece;
        }
        self.ops.push(format!("z{size}"));
    }
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [out, err] = [self.streams[0].len(), self.streams[1].len()];
        let input = self.input.len();
        write!(f, "'{}' writes {out} and {err}, reads {} of {input}", self.act(), self.read)
    }
}
