//! A random script for the puppet's act `play`, and what is known about it.

use pipewright_tests::bodies::{self, Said};

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

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// Returns a size, mostly a small one.
    pub(crate) fn size(&mut self) -> usize {
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
    pub(crate) fn endless(random: &mut Random, kinds: &str) -> Script {
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
    pub(crate) fn without_reads(&mut self) {
        self.without_input();
        self.ops.retain(|op| op != "R" && op != "I" && !op.starts_with('r'));
    }

    /// Takes its input away, for a way that feeds none.
    pub(crate) fn without_input(&mut self) {
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
