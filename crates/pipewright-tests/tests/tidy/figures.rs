//! Figures in the documents of workers that are constants of the code: each is said as the code has it.

use std::fs;

use super::{none, root};

/// A sentence of a document, with `{}` for each figure, and where the figures are: the file, the words before the
/// value, and the unit of the document.
type Said<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str, u64)]);

const IPC: &str = "crates/pipewright-ipc/src";
const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

const SAID: &[Said<'_>] = &[
    (
        "docs/workers.md",
        "| {} frames and {} MiB in each direction, and {} messages; {} spins (",
        &[
            ("connection/mod.rs", "TURN_FRAMES: u32 = ", 1),
            ("connection/mod.rs", "TURN_BYTES: u64 = ", MIB),
            ("pool/worker.rs", "TURN: usize = ", 1),
            ("connection/mod.rs", "TURN_SPINS: u32 = ", 1),
        ],
    ),
    (
        "docs/workers.md",
        "(`m` is `max_message_bytes` as agreed, {} MiB by default",
        &[("options.rs", "max_message_bytes: ", MIB)],
    ),
    ("docs/workers.md", " and {} items of each (", &[("pool/mailbox.rs", "MAX_UNSENT: u32 = ", 1)]),
    (
        "docs/workers.md",
        "The host's has {} MiB by default (`Options::ring_bytes`), that of the worker as much as it likes, \
         up to {} MiB",
        &[("options.rs", "ring_bytes: ", MIB), ("options.rs", "MAX_RING_BYTES: usize = ", MIB)],
    ),
    (
        "docs/workers.md",
        "at most {} at a time, fails",
        &[("../../pipewright-os/src/channel/handle_channel/mod.rs", "MOST_HANDLES: usize = ", 1)],
    ),
    (
        "docs/workers.md",
        "| {} bytes of each frame of the handshake, {} KiB of an error, {} KiB of a line, and the last {} KiB of",
        &[
            ("wire.rs", "MAX_HELLO_BYTES: usize = ", 1),
            ("error.rs", "MAX_TEXT_BYTES: usize = ", KIB),
            ("process.rs", "MAX_LINE_BYTES: usize = ", KIB),
            ("pool/options.rs", "kept_output_bytes: ", KIB),
        ],
    ),
    (
        "docs/workers.md",
        "`Options::handshake_timeout`, {} s by default",
        &[("options.rs", "handshake_timeout: Duration::from_secs(", 1)],
    ),
    (
        "docs/workers.md",
        "| after {} s its calls end as lost",
        &[("process.rs", "EXIT_DEADLINE: Duration = Duration::from_secs(", 1)],
    ),
    (
        "docs/workers.md",
        "| levels of a typed value | {}, in both",
        &[("codec.rs", "MAX_LEVELS: u32 = ", 1)],
    ),
    (
        "docs/workers.md",
        "After {} such workers it is `Lost`",
        &[("pool/driver/ended.rs", "MAX_RETURNS: u32 = ", 1)],
    ),
    (
        "docs/workers.md",
        "sends SIGTERM to a worker that still runs after {} s, and SIGKILL {} s later",
        &[
            ("pool/options.rs", "goodbye: Duration::from_secs(", 1),
            ("pool/options.rs", "terminate: Duration::from_secs(", 1),
        ],
    ),
    (
        "docs/wire.md",
        "It may have up to {} unanswered calls",
        &[("wire.rs", "MAX_CALLS: usize = ", 1)],
    ),
    (
        "docs/wire.md",
        "UTF-8 text of at most {} bytes",
        &[("wire.rs", "MAX_HELLO_BYTES: usize = ", 1)],
    ),
    (
        "docs/wire.md",
        "a power of two from {} KiB to {} MiB",
        &[
            ("options.rs", "MIN_RING_BYTES: usize = ", KIB),
            ("options.rs", "MAX_RING_BYTES: usize = ", MIB),
        ],
    ),
    (
        "docs/wire.md",
        "this library sends frames of at most {} KiB",
        &[("connection/sending.rs", "FRAME_BYTES: usize = ", KIB)],
    ),
];

/// A constant of the library: the file and the words before the value. Then those of the others.
type Shared<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

/// The same constants in the library and in the workers of other languages: those must not differ.
const SHARED: &[Shared<'_>] = &[
    (
        "wire.rs",
        "MAX_CALLS: usize = ",
        &[
            ("c/pipewright_worker.h", "PW_MAX_CALLS = "),
            ("python/pipewright_worker.py", "_MAX_CALLS = "),
            ("node/pipewright_worker.mjs", "MAX_CALLS = "),
        ],
    ),
    (
        "wire.rs",
        "MAX_HELLO_BYTES: usize = ",
        &[
            ("c/pipewright_worker.h", "PW_MAX_HELLO_BYTES = "),
            ("python/pipewright_worker.py", "_MAX_HELLO_BYTES = "),
            ("node/pipewright_worker.mjs", "MAX_HELLO_BYTES = "),
        ],
    ),
    (
        "options.rs",
        "MAX_RING_BYTES: usize = ",
        &[
            ("c/pipewright_worker.h", "PW_MAX_RING = "),
            ("python/pipewright_worker.py", "_MIN_RING, _MAX_RING = 64 << 10, "),
        ],
    ),
    (
        "options.rs",
        "max_message_bytes: ",
        &[
            ("c/pipewright_worker.h", "options->max_message_bytes : UINT64_C("),
            ("python/pipewright_worker.py", "max_message_bytes: int = "),
            ("node/pipewright_worker.mjs", "maxMessageBytes = "),
        ],
    ),
];

/// Returns the number after those words: `4096`, `4 << 20`, or with a suffix that a language needs.
fn number(file: &str, before: &str) -> u64 {
    let text =
        fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let found = text.lines().find_map(|line| {
        line.split_once(before)
            .filter(|(_, it)| it.starts_with(|first: char| first.is_ascii_digit()))
    });
    let (_, rest) = found.unwrap_or_else(|| panic!("{file} has no {before:?} with a number"));
    let words = rest.replace([')', '_'], "");
    let mut words =
        words.split(|it: char| !it.is_ascii_digit() && it != '<').filter(|it| !it.is_empty());
    let first: u64 = words.next().unwrap().parse().unwrap();
    match (words.next(), words.next()) {
        (Some("<<"), Some(shift)) => first << shift.parse::<u32>().unwrap(),
        _ => first,
    }
}

/// Returns a number as the documents write it: `4,096`, but `4096` before `bytes`.
fn spelled(number: u64, after: &str) -> String {
    let digits = number.to_string();
    match digits.len() {
        4.. if !after.starts_with(" bytes") && !after.starts_with(" unanswered") => {
            format!("{},{}", &digits[..digits.len() - 3], &digits[digits.len() - 3..])
        }
        _ => digits,
    }
}

#[test]
fn the_documents_say_the_bounds_that_the_code_has() {
    let mut wrong = Vec::new();
    for (document, sentence, figures) in SAID {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let mut parts = sentence.split("{}");
        let mut wanted = parts.next().unwrap().to_owned();
        for (part, (file, before, unit)) in parts.zip(*figures) {
            wanted += &spelled(number(&format!("{IPC}/{file}"), before) / unit, part);
            wanted += part;
        }
        if !text.contains(&wanted) {
            wrong.push(format!("{document}: {wanted}"));
        }
    }
    none("not in the documents", wrong);
}

#[test]
fn workers_in_other_languages_have_the_same_bounds() {
    let mut wrong = Vec::new();
    for (file, before, others) in SHARED {
        let ours = number(&format!("{IPC}/{file}"), before);
        for (other, name) in *others {
            let theirs = number(&format!("clients/{other}"), name);
            if theirs != ours {
                wrong.push(format!("clients/{other}: {name}{theirs}, not {ours}"));
            }
        }
    }
    none("differ", wrong);
}

#[test]
fn a_number_is_read_and_spelled_in_each_notation() {
    assert_eq!(number("clients/c/pipewright_worker.h", "PW_MAX_RING = "), 64 << 20);
    assert_eq!(number(&format!("{IPC}/connection/mod.rs"), "TURN_FRAMES: u32 = "), 4096);
    assert_eq!(
        (spelled(4096, " frames"), spelled(4096, " bytes of")),
        ("4,096".into(), "4096".into())
    );
}
