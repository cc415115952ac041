//! Tags stand before each line of a job.

use super::*;

fn tagged(mode: OutputMode) -> Batch {
    Batch::new(OutputOptions { tag: true, ..options(mode) })
}

#[test]
fn each_line_has_its_tag() {
    for mode in [OutputMode::Group, OutputMode::LineBuffer] {
        let mut batch = tagged(mode);
        batch.begin(1);
        for piece in ["a", "b\n", "\nc\nd", "\n"] {
            batch.out(1, piece);
        }
        batch.err(1, "e");
        batch.end(1);
        batch.run(2, "f\n");
        let expected = "t1\tab\nt1\t\nt1\tc\nt1\td\nt2\tf\n".to_owned();
        assert_eq!(batch.close_to_text(), (expected, "t1\te\n".to_owned()));
    }
}

#[test]
fn a_tag_is_one_line_and_bounded() {
    let mut batch = tagged(OutputMode::Group);
    batch.begin_as(key(1, 1), JobInfo { tag: "a\tb\nc d\u{9b}31m\x1b[31m".to_owned(), ..info(1) });
    batch.out(1, "x\n");
    batch.end(1);
    let long = JobInfo { tag: "é".repeat(9000), ..info(2) };
    batch.begin_as(key(2, 1), long);
    batch.out(2, "y\n");
    batch.end(2);
    let (out, _) = batch.close_to_text();
    let (first, second) = out.split_once('\n').unwrap();
    // Terminals take U+009B as ESC and a bracket.
    assert_eq!(first, "a b c d 31m [31m\tx");
    assert_eq!(second, format!("{}…\ty\n", "é".repeat(510)));
}

#[test]
fn a_tag_without_output_is_not_printed() {
    let mut batch = tagged(OutputMode::Group);
    batch.run(1, "");
    assert_eq!(batch.close_to_text().0, "");
}

#[test]
fn the_limit_counts_the_bytes_of_the_job_alone() {
    let limited = OutputOptions { tag: true, max_bytes: Some(3), ..options(OutputMode::Group) };
    let mut batch = Batch::new(limited);
    let summary = batch.run(1, "a\nbcd\n");
    assert_eq!((summary.stdout_bytes, summary.truncated), (6, true));
    // The tail is that of everything.
    assert_eq!(summary.tail, "a\nbcd");
    assert_eq!(batch.close_to_text().0, "t1\ta\nt1\tb\n");
}
