//! Line by line: lines are printed as they arrive, and never mixed.

use std::collections::BTreeMap;

use super::*;

#[test]
fn lines_of_jobs_are_never_mixed() {
    // Long lines are in the temporary file before they end.
    for memory_bytes in [0, 100_000, 24 << 20] {
        let lines = OutputOptions { memory_bytes, ..options(OutputMode::LineBuffer) };
        let mut batch = Batch::new(lines);
        let jobs = 5_u64;
        let mut expected: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        (1..=jobs).for_each(|job| batch.begin(job));
        for round in 0..40_u64 {
            for job in 1..=jobs {
                let letter = b'a' + job as u8;
                let length = (round * 997 * job % 50_000) as usize;
                let line = vec![letter; length];
                // In pieces that end in the middle of a line of this and of every other job.
                batch.out(job, &line[..length / 3]);
                expected.entry(job).or_default().push(line);
            }
            for job in 1..=jobs {
                let line = expected[&job].last().unwrap().clone();
                batch.out(job, &line[line.len() / 3..]);
                batch.out(job, "\n");
            }
        }
        (1..=jobs).for_each(|job| drop(batch.end(job)));
        let (out, _) = batch.close();
        let mut seen: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        let empty = expected.values().flatten().filter(|line| line.is_empty()).count();
        let lines: Vec<&[u8]> =
            out.strip_suffix(b"\n").unwrap().split(|byte| *byte == b'\n').collect();
        assert_eq!(lines.iter().filter(|line| line.is_empty()).count(), empty);
        for line in lines.into_iter().filter(|line| !line.is_empty()) {
            assert!(line.iter().all(|byte| *byte == line[0]), "one job a line");
            seen.entry(u64::from(line[0] - b'a')).or_default().push(line.to_vec());
        }
        expected.values_mut().for_each(|lines| lines.retain(|line| !line.is_empty()));
        assert!(seen == expected, "memory of {memory_bytes} bytes");
    }
}

#[test]
fn a_line_is_printed_when_it_ends() {
    let mut batch = Batch::new(options(OutputMode::LineBuffer));
    let printed = batch.stdout.clone();
    batch.begin(1);
    batch.out(1, "one\ntw");
    until(|| printed.0.lock().unwrap().as_slice() == b"one\n");
    batch.out(1, "o\n");
    until(|| printed.0.lock().unwrap().as_slice() == b"one\ntwo\n");
    batch.close();
}

#[test]
fn a_last_line_without_an_end_gets_one() {
    let mut batch = Batch::new(options(OutputMode::LineBuffer));
    batch.begin(1);
    batch.out(1, "out");
    batch.err(1, "err");
    batch.end(1);
    batch.run(2, "ended\n");
    batch.run(3, "");
    assert_eq!(batch.close_to_text(), ("out\nended\n".to_owned(), "err\n".to_owned()));
}

#[test]
fn an_attempt_that_is_retried_stays_printed_line_by_line() {
    let mut batch = Batch::new(options(OutputMode::LineBuffer));
    batch.begin(1);
    batch.out(1, "first\nun");
    batch.finish(1, false);
    batch.begin_as(key(1, 2), info(1));
    batch.out(1, "second\n");
    batch.end(1);
    assert_eq!(batch.close_to_text().0, "first\nun\nsecond\n");
}
