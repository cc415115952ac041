//! The start and the end of a stream, with a line that says what is left out between them. That is never in memory; on
//! request all of the stream is in a file.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, mem};

use pipewright_os::base::error::OneLine;
use pipewright_os::base::private_file;

use crate::outcome::Source;
use crate::output::Decoding;

/// Keeps the first and the last bytes of a stream, cut at whole lines: see
/// [`Limit::keep_head_and_tail`](crate::Limit::keep_head_and_tail).
#[doc(hidden)]
#[derive(Debug)]
pub struct HeadAndTail {
    head_bytes: usize,
    tail_bytes: usize,
    /// The first bytes.
    start: Vec<u8>,
    /// The number of them that have been taken.
    taken: usize,
    /// The number of them in which line feeds have been searched.
    searched: usize,
    /// The last ones: at most twice the tail.
    end: Vec<u8>,
    left_out: LeftOut,
    file: SpillFile,
}

/// The kept bytes of a stream that has ended.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct KeptEnds {
    /// The start that was not taken, the line about what is left out, and the end.
    pub bytes: Vec<u8>,
    /// True if bytes were left out.
    pub is_cut: bool,
    /// The file with all of the stream, if bytes were left out and it could be written.
    pub file: Option<PathBuf>,
    /// The error of that file. Then it is not there, or has only a part of the stream.
    pub spill_failed: Option<SpillFailed>,
}

/// The error of the file for all of a stream.
#[doc(hidden)]
#[derive(Debug)]
pub struct SpillFailed {
    /// The file, or the folder if there is no file.
    pub path: PathBuf,
    /// The stream.
    pub source: Source,
    /// The error.
    pub error: io::Error,
}

/// The bytes that are left out.
#[derive(Debug, Default, Clone, Copy)]
struct LeftOut {
    bytes: u64,
    line_feeds: u64,
    /// True if the last one ends a line.
    ends_line: bool,
}

/// The cuts of a stream that ends now.
#[derive(Debug)]
struct Cuts {
    /// The number of bytes that are kept of the start.
    start: usize,
    /// The number of bytes of the end that are left out.
    end: usize,
    left_out: LeftOut,
}

/// Keeps both ends of a stream. A trait object, so that only programs that set a limit contain the code.
pub(crate) trait Ends: fmt::Debug + Send {
    /// Adds bytes.
    fn push(&mut self, bytes: &[u8]);

    /// Returns a copy of what is kept if the stream ends now.
    fn so_far(&self) -> Vec<u8>;

    /// Returns the number of bytes that are kept if the stream ends now, before they are cut at lines.
    fn bytes_so_far(&self) -> usize;

    /// Ends the stream.
    fn finish(self: Box<Self>) -> KeptEnds;
}

/// Opens the ends of a stream: the most bytes of each, and a folder for all of it.
pub(crate) type OpenEnds = fn(usize, usize, Option<&Path>, Source) -> Box<dyn Ends>;

/// Opens the ends of a stream.
pub(super) fn open_ends(
    head_bytes: usize,
    tail_bytes: usize,
    folder: Option<&Path>,
    source: Source,
) -> Box<dyn Ends> {
    let mut ends = HeadAndTail::new(head_bytes, tail_bytes);
    if let Some(folder) = folder {
        ends.spill_to(folder, source);
    }
    Box::new(ends)
}

impl Ends for HeadAndTail {
    fn push(&mut self, bytes: &[u8]) {
        HeadAndTail::push(self, bytes);
    }

    fn so_far(&self) -> Vec<u8> {
        let cuts = self.cuts();
        let start = self.start.get(self.taken..cuts.start).unwrap_or_default();
        // A file is named once all is in it.
        let between = cuts.left_out.between(start, &SpillFile::NotWanted);
        [start, between.as_bytes(), self.end.get(cuts.end..).unwrap_or_default()].concat()
    }

    fn bytes_so_far(&self) -> usize {
        self.start.len() - self.taken + self.end.len().min(self.tail_bytes)
    }

    fn finish(self: Box<Self>) -> KeptEnds {
        HeadAndTail::finish(*self)
    }
}

/// The file of a stream.
#[derive(Debug)]
enum SpillFile {
    NotWanted,
    Wanted(PathBuf, Source),
    Open(File, PathBuf, Source),
    /// It is not there.
    Missing(SpillFailed),
    /// A write has failed, and the rest is lost.
    Partial(SpillFailed),
}

impl HeadAndTail {
    /// Creates one that keeps at most this many bytes.
    #[must_use]
    pub fn new(head_bytes: usize, tail_bytes: usize) -> HeadAndTail {
        HeadAndTail {
            head_bytes,
            tail_bytes,
            start: Vec::new(),
            taken: 0,
            searched: 0,
            end: Vec::new(),
            left_out: LeftOut::default(),
            file: SpillFile::NotWanted,
        }
    }

    /// Writes all of the stream to a file in this folder once bytes are left out.
    pub fn spill_to(&mut self, dir: &Path, source: Source) {
        self.file = SpillFile::Wanted(dir.to_owned(), source);
    }

    /// Checks that a file can be made in a folder for streams.
    ///
    /// # Errors
    /// It cannot.
    pub fn check_folder(dir: &Path) -> io::Result<()> {
        let (_, path) = create_spill(dir, Source::Stdout)?;
        std::fs::remove_file(path)
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.file.write(&[bytes]);
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_bytes - self.start.len()));
        extend(&mut self.start, first, self.head_bytes);
        let most = self.tail_bytes.saturating_mul(2);
        let excess = match self.end.len() + rest.len() {
            all if all > most => all - self.tail_bytes,
            _ => 0,
        };
        if excess > 0 {
            self.file.open(&[&self.start, &self.end, rest]);
        }
        let of_end = excess.min(self.end.len());
        let (left_out, rest) = rest.split_at(excess - of_end);
        self.left_out.add(self.end.drain(..of_end).as_slice());
        self.left_out.add(left_out);
        extend(&mut self.end, rest, most);
    }

    /// Takes the lines of the start that are whole, for a reader who does not want to wait for the end.
    #[must_use]
    pub fn take_start(&mut self) -> &[u8] {
        let new = self.start.get(self.searched..).unwrap_or_default();
        let whole = line_ends(new).map_or(self.taken, |at| self.searched + at);
        self.searched = self.start.len();
        self.start.get(mem::replace(&mut self.taken, whole)..whole).unwrap_or_default()
    }

    /// Finds the cuts: at whole lines or, of a line that is longer, at whole characters.
    fn cuts(&self) -> Cuts {
        let (excess, end) = self.end.split_at(self.end.len().saturating_sub(self.tail_bytes));
        let mut left_out = self.left_out;
        left_out.add(excess);
        if left_out.bytes == 0 {
            return Cuts { start: self.start.len(), end: 0, left_out };
        }
        let whole = Decoding::default().without_half_a_character(&self.start).len();
        let start = line_ends(&self.start).unwrap_or(whole).max(self.taken);
        left_out.bytes += (self.start.len() - start) as u64;
        let first_line = end.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let later = |byte: &&u8| **byte & 0xc0 == 0x80;
        let rest = match first_line {
            _ if left_out.ends_line => 0,
            Some(line) if line < end.len() => line,
            _ => end.iter().take(3).take_while(later).count(),
        };
        left_out.add(end.get(..rest).unwrap_or_default());
        Cuts { start, end: excess.len() + rest, left_out }
    }

    /// Ends the stream.
    #[must_use]
    pub fn finish(self) -> KeptEnds {
        let cuts = self.cuts();
        let HeadAndTail { start: mut bytes, taken, mut end, mut file, .. } = self;
        let is_cut = cuts.left_out.bytes > 0;
        if is_cut {
            file.open(&[&bytes, &end]);
        }
        bytes.truncate(cuts.start);
        bytes.drain(..taken);
        // What is left out is freed before the rest is copied.
        end.drain(..cuts.end);
        end.shrink_to_fit();
        let between = cuts.left_out.between(&bytes, &file);
        bytes.reserve_exact(between.len() + end.len());
        bytes.extend_from_slice(between.as_bytes());
        bytes.extend_from_slice(&end);
        let (file, spill_failed) = match file {
            SpillFile::NotWanted | SpillFile::Wanted(..) => (None, None),
            SpillFile::Open(_, path, _) => (Some(path), None),
            SpillFile::Missing(failed) | SpillFile::Partial(failed) => (None, Some(failed)),
        };
        KeptEnds { bytes, is_cut, file, spill_failed }
    }
}

/// Adds bytes to a buffer that will have at most this many. It grows as a vector does, but not beyond that.
fn extend(buffer: &mut Vec<u8>, bytes: &[u8], most: usize) {
    let needed = buffer.len() + bytes.len();
    if needed > buffer.capacity() {
        let wanted = buffer.capacity().saturating_mul(2).min(most).max(needed);
        buffer.reserve_exact(wanted - buffer.len());
    }
    buffer.extend_from_slice(bytes);
}

/// Returns the number of bytes up to the end of the last whole line; `None` if no line is whole.
fn line_ends(bytes: &[u8]) -> Option<usize> {
    #[cfg(test)]
    tests::SEARCHED.set(tests::SEARCHED.get() + bytes.len());
    bytes.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1)
}

impl LeftOut {
    fn add(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last() {
            self.bytes += bytes.len() as u64;
            self.line_feeds += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            self.ends_line = *last == b'\n';
        }
    }

    /// Returns what is between this start and the end: the line about it, on a line of its own.
    fn between(&self, start: &[u8], file: &SpillFile) -> String {
        match start.last() {
            _ if self.bytes == 0 => String::new(),
            Some(last) if *last != b'\n' => format!("\n{}", self.line(file)),
            _ => self.line(file),
        }
    }

    /// Returns the line about it.
    fn line(&self, file: &SpillFile) -> String {
        // The last one may have been cut.
        let lines = self.line_feeds + u64::from(!self.ends_line);
        let s = |count: u64| if count == 1 { "" } else { "s" };
        let bytes = self.bytes;
        let what = format!("{bytes} byte{}, {lines} line{} left out", s(bytes), s(lines));
        let name = |path: &Path| OneLine(&path.to_string_lossy()).to_string();
        match file {
            SpillFile::NotWanted | SpillFile::Wanted(..) => format!("[{what}]\n"),
            SpillFile::Open(_, path, _) => format!("[{what}: all is in {}]\n", name(path)),
            SpillFile::Missing(SpillFailed { error, .. }) => {
                format!("[{what}: cannot keep them in a file: {error}]\n")
            }
            SpillFile::Partial(SpillFailed { path, error, .. }) => {
                format!("[{what}: {} has only a part: {error}]\n", name(path))
            }
        }
    }
}

impl SpillFile {
    /// Creates the file, if it is wanted and not there, with these bytes.
    fn open(&mut self, parts: &[&[u8]]) {
        let SpillFile::Wanted(dir, source) = self else { return };
        let source = *source;
        match create_spill(dir, source) {
            Ok((file, path)) => *self = SpillFile::Open(file, path, source),
            Err(error) => {
                let path = mem::take(dir);
                return *self = SpillFile::Missing(SpillFailed { path, source, error });
            }
        }
        self.write(parts);
    }

    /// Adds bytes to the file, if it is there.
    fn write(&mut self, parts: &[&[u8]]) {
        let SpillFile::Open(file, path, source) = self else { return };
        let written = parts.iter().try_for_each(|part| file.write_all(part));
        if let Err(error) = written {
            let (path, source) = (mem::take(path), *source);
            *self = SpillFile::Partial(SpillFailed { path, source, error });
        }
    }
}

/// Creates a file for a stream, which only this user can read.
fn create_spill(dir: &Path, source: Source) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("{source}-{}-{number}", std::process::id()));
        match private_file::create_new(&path) {
            // Of an earlier process with our number.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|file| (file, path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    thread_local! {
        /// The bytes in which line feeds were searched.
        pub(super) static SEARCHED: Cell<usize> = Cell::default();
    }

    /// The most bytes of the line about what is left out.
    const LINE_BYTES: usize = 64;

    fn kept(head: usize, tail: usize, text: &str, chunk: usize) -> String {
        let mut ends = HeadAndTail::new(head, tail);
        let mut all = Vec::new();
        for chunk in text.as_bytes().chunks(chunk) {
            ends.push(chunk);
            all.extend_from_slice(ends.take_start());
            assert!(ends.start.capacity() <= head && ends.end.capacity() <= 2 * tail);
            assert!(ends.so_far().len() <= head + tail + LINE_BYTES);
            assert!(ends.bytes_so_far() <= head + tail);
        }
        let so_far = ends.so_far();
        let rest = ends.finish();
        assert!(rest.bytes.capacity() <= head + tail + LINE_BYTES);
        assert_eq!(so_far, rest.bytes);
        assert_eq!(rest.is_cut, text.len() > head + tail);
        all.extend_from_slice(&rest.bytes);
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn whole_lines_stand_around_the_line_about_the_rest() {
        let text = "one\ntwo\nthree\nfour\nfive\n";
        for chunk in [1, 3, 100] {
            for (head, tail, expected) in [
                (100, 0, text),
                (12, 12, text),
                (4, 5, "one\n[15 bytes, 3 lines left out]\nfive\n"),
                // A line that does not fit whole is left out whole.
                (7, 7, "one\n[15 bytes, 3 lines left out]\nfive\n"),
                (0, 5, "[19 bytes, 4 lines left out]\nfive\n"),
                (4, 0, "one\n[20 bytes, 4 lines left out]\n"),
                (0, 0, "[24 bytes, 5 lines left out]\n"),
                (13, 10, "one\ntwo\n[6 bytes, 1 line left out]\nfour\nfive\n"),
            ] {
                assert_eq!(kept(head, tail, text, chunk), expected, "{head}+{tail}, {chunk}");
            }
            // A line that is longer than what is kept is cut between characters.
            let line = "\u{e9}\u{e9}\u{e9}\u{e9}";
            assert_eq!(kept(3, 3, line, chunk), "\u{e9}\n[4 bytes, 1 line left out]\n\u{e9}");
            assert_eq!(kept(1, 1, "abc\n", chunk), "a\n[2 bytes, 1 line left out]\n\n");
        }
    }

    proptest! {
        #[test]
        fn what_is_kept_and_what_is_said_make_up_the_stream(
            text in "[a\u{e9}\u{1f600}\n]{0,60}",
            head in 0..30_usize,
            tail in 0..30_usize,
            chunk in 1..40_usize,
        ) {
            let kept = kept(head, tail, &text, chunk);
            if text.len() <= head + tail {
                prop_assert_eq!(kept, text);
            } else {
                let (start, rest) = kept.split_once('[').unwrap();
                let (said, end) = rest.split_once("left out]\n").unwrap();
                let bytes: usize = said.split(' ').next().unwrap().parse().unwrap();
                // A line that was cut has a line feed of ours.
                let is_ours = start.len() > head || !text.starts_with(start);
                let start = &start[..start.len() - usize::from(is_ours)];
                prop_assert!(text.starts_with(start) && text.ends_with(end));
                prop_assert!(start.len() <= head && end.len() <= tail);
                prop_assert_eq!(start.len() + bytes + end.len(), text.len());
                let middle = &text[start.len()..text.len() - end.len()];
                let lines = middle.split_inclusive('\n').count();
                let lines = lines.to_string();
                prop_assert_eq!(said.split(' ').nth(2), Some(&*lines));
            }
        }
    }

    #[test]
    fn a_start_that_is_taken_is_searched_once() {
        let mut ends = HeadAndTail::new(1000, 10);
        let before = SEARCHED.get();
        for chunk in ["one\n", "two\nthr", "ee"] {
            ends.push(chunk.as_bytes());
            let _lines = ends.take_start();
        }
        // The head fills up, and more comes after it, with no line feed.
        for _ in 0..1000 {
            ends.push(b"0123456789");
            assert_eq!(ends.take_start(), b"");
        }
        assert_eq!(SEARCHED.get() - before, 1000);
    }

    #[test]
    fn the_file_has_all_of_a_stream_that_was_cut_and_none_is_made_for_another() {
        let dir = std::env::temp_dir().join(format!("spill-test-{}", std::process::id()));
        // A run that was killed has left it behind, if this process has its number.
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        let run = |chunks: &[&str]| {
            let mut ends = HeadAndTail::new(4, 4);
            ends.spill_to(&dir, Source::Stderr);
            chunks.iter().for_each(|chunk| ends.push(chunk.as_bytes()));
            ends.finish()
        };
        assert_eq!(run(&["whole", "\n"]).file, None);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        // Cut while it runs, and only at its end.
        for chunks in [&["one\n", "two\nthree\n", "end\n"][..], &["one\n", "three\n"]] {
            let kept = run(chunks);
            let path = kept.file.unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), chunks.concat());
            let said = format!("left out: all is in {}]", path.display());
            assert!(String::from_utf8(kept.bytes).unwrap().contains(&said));
        }
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(HeadAndTail::check_folder(&dir).is_err());
        let mut kept = run(&["one\ntwo\nthree\n"]);
        assert_eq!(kept.spill_failed.take().unwrap().path, dir);
        let text = String::from_utf8(kept.bytes).unwrap();
        assert!(kept.file.is_none() && text.contains("cannot keep them in a file: "), "{text}");

        // One that fails later is named: a part is in it.
        let part = std::env::current_exe().unwrap();
        let mut ends = HeadAndTail::new(4, 4);
        let read_only = File::open(&part).unwrap();
        ends.file = SpillFile::Open(read_only, part.clone(), Source::Stdout);
        ends.push(b"one\ntwo\nthree\n");
        let kept = ends.finish();
        let text = String::from_utf8(kept.bytes).unwrap();
        let said = format!("left out: {} has only a part: ", part.display());
        assert!(kept.file.is_none() && text.contains(&said), "{text}");
        assert_eq!(kept.spill_failed.unwrap().path, part);
    }
}
