//! The identity of a job: a hash of what it does, and how many equal jobs came before it.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::template::Piece;
use super::{Job, JobCommand, JobStdin};

/// The identity of a job in its batch, in 128 bits.
///
/// It is made of the words, the directory, the changes to the environment and the input of a job, and the number of
/// equal jobs before it. Neither the position of the job nor its name, limits, resources or dependencies are in it, so
/// a resumed batch finds its jobs again after lines were added or removed. An input from a file counts by its path.
///
/// Prints as 32 hexadecimal digits.
///
/// ```
/// use pipewright_batch::{Job, JobId};
/// let first = JobId::new(&Job::new("true"), 0);
/// let second = JobId::new(&Job::new("true"), 1);
/// assert_ne!(first, second);
/// assert_eq!(first.to_string().parse(), Ok(first));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u128);

impl JobId {
    /// Returns the identity of a job that follows this number of equal jobs.
    #[must_use]
    pub fn new(job: &Job, equal_before: u32) -> JobId {
        JobId::of(fingerprint(job), equal_before)
    }

    /// Returns the bytes, in the order that they print in.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Returns the identity with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> JobId {
        JobId(u128::from_be_bytes(bytes))
    }

    fn of(fingerprint: u128, equal_before: u32) -> JobId {
        let mut hash = Sha256::new();
        // A length before it, as in the encoding of a job, and another one: no job has the same bytes.
        hash.update(b"\x16\0\0\0\0\0\0\0pipewright batch jobid");
        hash.update(fingerprint.to_be_bytes());
        hash.update(equal_before.to_le_bytes());
        JobId(first_half(hash.finalize().into()))
    }
}

fn fingerprint(job: &Job) -> u128 {
    first_half(hash(job))
}

fn first_half(hash: [u8; 32]) -> u128 {
    hash.iter().take(16).fold(0, |value, byte| value << 8 | u128::from(*byte))
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({self})")
    }
}

impl FromStr for JobId {
    type Err = ParseJobIdError;

    fn from_str(text: &str) -> Result<JobId, ParseJobIdError> {
        // The parser of integers takes a sign too.
        let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = is_id.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        id.map(JobId).ok_or(ParseJobIdError(()))
    }
}

/// An error: a text is no identity of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseJobIdError(());

impl fmt::Display for ParseJobIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an identity of a job has 32 hexadecimal digits")
    }
}

impl std::error::Error for ParseJobIdError {}

/// Gives each job of a stream its identity, by counting the equal ones before it.
///
/// Takes about 23 bytes for each different job. The fingerprints are compared whole, so that jobs whose fingerprints
/// begin alike are never taken for equal.
///
/// ```
/// use pipewright_batch::{Identities, Job};
/// let mut identities = Identities::new();
/// let first = identities.next_id(&Job::new("true"));
/// assert_ne!(identities.next_id(&Job::new("true")), first);
/// assert_eq!(Identities::new().next_id(&Job::new("true")), first);
/// ```
#[derive(Debug)]
pub struct Identities {
    shards: Vec<Shard>,
}

/// The fingerprints with the same first bits, sorted, and the number of jobs with each.
///
/// Sorted lists need less memory than a hash table, which is half empty after it has grown. There are enough shards
/// that an insertion moves few bytes.
#[derive(Debug, Default)]
struct Shard {
    fingerprints: Vec<u128>,
    counts: Vec<u32>,
}

const SHARD_BITS: u32 = 12;

impl Default for Identities {
    fn default() -> Identities {
        Identities::new()
    }
}

impl Identities {
    /// Creates one that has seen no job.
    #[must_use]
    pub fn new() -> Identities {
        let mut shards = Vec::new();
        shards.resize_with(1 << SHARD_BITS, Shard::default);
        Identities { shards }
    }

    /// Returns the identity of the next job.
    pub fn next_id(&mut self, job: &Job) -> JobId {
        let fingerprint = fingerprint(job);
        JobId::of(fingerprint, self.equal_before(fingerprint))
    }

    /// Returns the number of earlier calls with that fingerprint.
    fn equal_before(&mut self, fingerprint: u128) -> u32 {
        let shard = (fingerprint >> (u128::BITS - SHARD_BITS)) as usize;
        self.shards.get_mut(shard).map_or(0, |shard| shard.equal_before(fingerprint))
    }
}

impl Shard {
    fn equal_before(&mut self, fingerprint: u128) -> u32 {
        match self.fingerprints.binary_search(&fingerprint) {
            Ok(index) => self.counts.get_mut(index).map_or(0, |count| {
                let before = *count;
                // No batch runs four billion equal jobs.
                *count = before.saturating_add(1);
                before
            }),
            Err(index) => {
                // Grows by an eighth: doubling would leave a quarter of the memory unused.
                if self.fingerprints.len() == self.fingerprints.capacity() {
                    let more = self.fingerprints.len() / 8 + 4;
                    self.fingerprints.reserve_exact(more);
                    self.counts.reserve_exact(more);
                }
                self.fingerprints.insert(index, fingerprint);
                self.counts.insert(index, 1);
                0
            }
        }
    }
}

// The encoding of a job's identity: the bytes that are hashed.

/// The version of the encoding. A change of the encoding changes every identity, so that a log of an older version
/// would know no job: raise this, and keep the older encoding for older logs.
const VERSION: u8 = 1;

/// Feeds a hash with the parts of a job. Each part begins with a tag, and each text with its length, so that no two
/// different jobs give the same bytes.
struct Encoder {
    hash: Sha256,
    /// A run of text that the next piece may continue: `a{}` with the value `b` is the word `ab`.
    run: Vec<u8>,
}

/// Returns the hash of all that makes a job another job: its words, directory, environment and input.
///
/// `{#}` and `{%}` count as themselves, so that neither the position of a job nor its slot are in its hash.
fn hash(job: &Job) -> [u8; 32] {
    let mut encoder = Encoder { hash: Sha256::new(), run: Vec::new() };
    encoder.text(b"pipewright batch job");
    encoder.tag(VERSION);
    encoder.command(job);
    let settings = job.settings();
    encoder.tag(b'd');
    encoder.optional(settings.current_dir.as_ref().map(|dir| dir.as_os_str().as_encoded_bytes()));
    encoder.tag(b'e');
    encoder.number(settings.env.len());
    for (name, value) in &settings.env {
        encoder.text(name.as_encoded_bytes());
        encoder.optional(value.as_ref().map(|value| value.as_encoded_bytes()));
    }
    match &settings.stdin {
        JobStdin::Null => encoder.tag(b'n'),
        JobStdin::Bytes(bytes) => {
            encoder.tag(b'b');
            encoder.text(bytes);
        }
        JobStdin::File(path) => {
            encoder.tag(b'f');
            encoder.text(path.as_os_str().as_encoded_bytes());
        }
    }
    encoder.hash.finalize().into()
}

impl Encoder {
    fn command(&mut self, job: &Job) {
        let mut piece = |piece: Piece<'_>| match piece {
            Piece::Bytes(bytes) => self.run.extend_from_slice(bytes),
            Piece::Number => self.marker(b'#'),
            Piece::Slot => self.marker(b'%'),
            Piece::EndOfWord => self.marker(b'.'),
        };
        let (is_shell, first) = match &job.command {
            JobCommand::Program(program) => (false, Some(program)),
            JobCommand::Shell(line) => (true, Some(line)),
            JobCommand::Template { template, record, .. } => {
                template.pieces(record, &mut piece);
                (false, None)
            }
        };
        for word in first.into_iter().chain(&job.args) {
            piece(Piece::Bytes(word.as_encoded_bytes()));
            piece(Piece::EndOfWord);
        }
        self.tag(if is_shell { b's' } else { b'w' });
    }

    /// Ends a run of text, if there is one, and adds the mark of what follows it.
    fn marker(&mut self, tag: u8) {
        let run = std::mem::take(&mut self.run);
        if !run.is_empty() {
            self.tag(b't');
            self.text(&run);
        }
        self.tag(tag);
        self.run = run;
        self.run.clear();
    }

    fn tag(&mut self, tag: u8) {
        self.hash.update([tag]);
    }

    fn number(&mut self, number: usize) {
        self.hash.update((number as u64).to_le_bytes());
    }

    fn text(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.hash.update(bytes);
    }

    fn optional(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            None => self.tag(0),
            Some(bytes) => {
                self.tag(1);
                self.text(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::job::{JobStdin, Record, Template};

    fn id(job: Job) -> JobId {
        JobId::new(&job, 0)
    }

    fn from_template(words: &[&str], number: u64, value: &str) -> Job {
        let template = Arc::new(Template::parse(words).unwrap());
        template.job(number, Record::new(value)).unwrap()
    }

    #[test]
    fn an_identity_never_changes() {
        // A log of an earlier release has these. See `encoding::VERSION`. Computed by another program, in Python.
        let id = id(Job::new("gzip")
            .args(["-9", "a b"])
            .current_dir("/d")
            .env("A", "1")
            .env_remove("B"));
        assert_eq!(id.to_string(), "7066d46833eb732952759d3fb2a0351c");
        let job = Job::shell("x").stdin(JobStdin::bytes("in"));
        assert_eq!(JobId::new(&job, 2).to_string(), "88e6c5d53838afa6c1cacfc466be814c");
    }

    #[test]
    fn each_part_makes_another_identity() {
        let job = || Job::new("a").arg("b");
        let jobs = [
            job(),
            Job::new("ab"),
            // The bytes that are hashed of `a` and `b`, without their lengths.
            Job::new("a.tb"),
            Job::new("a"),
            job().arg(""),
            Job::new("").arg("ab"),
            Job::new("a b"),
            Job::shell("a").arg("b"),
            Job::shell("a b"),
            job().current_dir("b"),
            job().current_dir(""),
            job().env("A", ""),
            job().env("A", "B"),
            job().env("AB", ""),
            job().env_remove("A"),
            job().env("A", "").env("B", ""),
            job().stdin(JobStdin::bytes("")),
            job().stdin(JobStdin::bytes("x")),
            job().stdin(JobStdin::file("x")),
            from_template(&["a", "b", "{#}"], 1, ""),
            from_template(&["a", "b", "{%}"], 1, ""),
            Job::new("a").args(["b", "{#}"]),
            Job::new("a").args(["b", "1"]),
            Job::new("a").args(["b", "#"]),
            from_template(&["a", "b", "{#}{#}"], 1, ""),
            from_template(&["a", "b", "{#}", "{#}"], 1, ""),
        ];
        let ids: HashSet<JobId> = jobs.iter().map(|job| JobId::new(job, 0)).collect();
        assert_eq!(ids.len(), jobs.len());
    }

    #[test]
    fn position_name_limits_and_order_of_variables_are_no_part() {
        let job = || Job::new("a").env("A", "1").env("B", "2");
        for same in [
            job().name("n").after("m").cpus(2).mem_bytes(1).resource("t", 1),
            job().timeout(std::time::Duration::ZERO).retries(1).once(true).on_line(4),
            Job::new("a").env("B", "0").env("B", "2").env("A", "1"),
        ] {
            assert_eq!(id(same), id(job()));
        }
        let numbered = |number| from_template(&["a{#}", "{%}", "{}"], number, "x");
        assert_eq!(id(numbered(1)), id(numbered(2)));
    }

    #[test]
    fn a_job_of_a_template_equals_the_same_words() {
        assert_eq!(
            id(from_template(&["cp", "{}", "x{.}y", "{#"], 9, "a.b")),
            id(Job::new("cp").args(["a.b", "xay", "{#"]))
        );
        assert_eq!(id(from_template(&["echo"], 9, "")), id(Job::new("echo").arg("")));
    }

    #[test]
    fn equal_jobs_are_counted() {
        let mut identities = Identities::new();
        let ids: Vec<JobId> =
            ["a", "b", "a", "a"].map(|word| identities.next_id(&Job::new(word))).into();
        let expected = [("a", 0), ("b", 0), ("a", 1), ("a", 2)];
        assert_eq!(ids, expected.map(|(word, before)| JobId::new(&Job::new(word), before)));
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 4);
    }

    #[test]
    fn fingerprints_that_begin_alike_are_not_equal() {
        let mut identities = Identities::new();
        let start = 0x0123_4567_89ab_cdef_u128 << 64;
        for low in [0, 1, u128::from(u64::MAX)] {
            assert_eq!(identities.equal_before(start | low), 0);
        }
        assert_eq!(identities.equal_before(start | 1), 1);
        assert_eq!(identities.equal_before(start), 1);
        assert_eq!(identities.equal_before(start | 1), 2);
        // The same end, with the start of every other shard.
        assert_eq!(identities.equal_before(1), 0);
        assert_eq!(identities.equal_before(u128::MAX), 0);
    }

    #[test]
    fn memory_is_bounded_whether_jobs_are_equal_or_not() {
        let count = 200_000_u64;
        for different in [count, count / 2, 1] {
            let mut identities = Identities::new();
            for index in 0..count {
                let hash: [u8; 32] = Sha256::digest((index % different).to_le_bytes()).into();
                let before = identities.equal_before(first_half(hash));
                assert_eq!(u64::from(before), index / different);
            }
            // Beside the shards themselves, which take 200 KiB.
            let held = |it: &Shard| it.fingerprints.capacity() * 16 + it.counts.capacity() * 4;
            let bytes = identities.shards.iter().map(held).sum::<usize>();
            assert!(bytes <= 24 * different as usize + 16 * 1024, "{bytes} bytes for {different}");
        }
    }

    #[test]
    fn identities_are_printed_and_parsed() {
        let id = JobId::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0eff");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().to_uppercase().parse(), Ok(id));
        assert_eq!(format!("{id:?}"), "JobId(000102030405060708090a0b0c0d0eff)");
        let long = "0".repeat(33);
        let signed = format!("+{}", "0".repeat(31));
        for text in
            ["", "0", &long, &signed, &"g".repeat(32), "000102030405060708090a0b0c0d0ef\u{e9}"]
        {
            assert_eq!(text.parse::<JobId>(), Err(ParseJobIdError(())), "{text}");
        }
    }

    type Parts =
        (bool, Vec<String>, Option<String>, Vec<(String, Option<String>)>, Option<(bool, String)>);

    /// Returns the parts of a job, of few letters, so that equal texts in different places are likely.
    fn parts() -> impl Strategy<Value = Parts> {
        let text = || "[ab{#}]{0,3}";
        let variable = (text(), prop::option::of(text()));
        (
            any::<bool>(),
            prop::collection::vec(text(), 1..4),
            prop::option::of(text()),
            prop::collection::vec(variable, 0..3),
            prop::option::of((any::<bool>(), text())),
        )
    }

    fn job((is_shell, words, dir, env, stdin): &Parts) -> Job {
        let job = if *is_shell { Job::shell(&words[0]) } else { Job::new(&words[0]) };
        let mut job = job.args(&words[1..]);
        if let Some(dir) = dir {
            job = job.current_dir(dir);
        }
        for (name, value) in env {
            job = match value {
                Some(value) => job.env(name, value),
                None => job.env_remove(name),
            };
        }
        match stdin {
            Some((true, text)) => job.stdin(JobStdin::bytes(text.as_str())),
            Some((false, text)) => job.stdin(JobStdin::file(text)),
            None => job,
        }
    }

    proptest! {
        #[test]
        fn identities_are_equal_only_if_all_parts_are(one in parts(), other in parts()) {
            let (one, other) = (job(&one), job(&other));
            prop_assert_eq!(JobId::new(&one, 0) == JobId::new(&other, 0), one == other);
            prop_assert_ne!(JobId::new(&one, 0), JobId::new(&one, 1));
        }

        #[test]
        fn occurrences_are_counted_as_by_a_map(fingerprints in prop::collection::vec(0..20_u128, 0..200)) {
            let mut identities = Identities::new();
            let mut counts = HashMap::new();
            for small in fingerprints {
                let fingerprint = (small << 120) | (small % 3);
                let count: &mut u32 = counts.entry(fingerprint).or_default();
                prop_assert_eq!(identities.equal_before(fingerprint), *count);
                *count += 1;
            }
        }
    }
}
