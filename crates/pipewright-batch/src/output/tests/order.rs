//! With `keep_order`, jobs are printed in the order of the input.

use super::*;

fn ordered(mode: OutputMode) -> Batch {
    Batch::new(OutputOptions { keep_order: true, ..options(mode) })
}

#[test]
fn jobs_are_printed_in_order_and_those_that_did_not_run_are_passed_over() {
    let mut batch = ordered(OutputMode::Group);
    // 3 and 6 never run, 5 prints nothing.
    batch.run(4, "4\n");
    batch.output.settle(6);
    batch.run(7, "7\n");
    batch.run(2, "2\n");
    batch.output.settle(3);
    batch.run(5, "");
    batch.begin(1);
    batch.out(1, "1\n");
    assert_eq!(batch.stdout.text(), "", "the first job still runs");
    batch.end(1);
    let printed = batch.stdout.clone();
    until(|| printed.0.lock().unwrap().as_slice() == b"1\n2\n4\n7\n");
    batch.close();
}

#[test]
fn a_job_is_printed_as_soon_as_it_is_its_turn() {
    let mut batch = ordered(OutputMode::Group);
    batch.run(1, "1\n");
    let printed = batch.stdout.clone();
    until(|| printed.0.lock().unwrap().as_slice() == b"1\n");
    batch.close();
}

#[test]
fn a_job_that_was_settled_twice_or_before_is_printed_once() {
    let mut batch = ordered(OutputMode::Group);
    batch.run(1, "1");
    batch.run(2, "2");
    for job in [1, 2, 2, 1] {
        batch.output.settle(job);
    }
    assert_eq!(batch.close_to_text().0, "12");
}

#[test]
fn the_first_unfinished_job_prints_its_lines_as_they_arrive() {
    let mut batch = ordered(OutputMode::LineBuffer);
    let printed = batch.stdout.clone();
    let is = |text: &str| until(|| printed.0.lock().unwrap().as_slice() == text.as_bytes());
    batch.begin(1);
    batch.begin(2);
    batch.out(2, "2a\n2b");
    batch.out(1, "1a\n1");
    is("1a\n");
    batch.out(1, "b");
    batch.end(1);
    // Its last line got an end, and the lines that waited came.
    is("1a\n1b\n2a\n");
    batch.out(2, "\n2c\n");
    is("1a\n1b\n2a\n2b\n2c\n");
    batch.end(2);
    batch.begin(3);
    batch.out(3, "3a\n");
    is("1a\n1b\n2a\n2b\n2c\n3a\n");
    batch.close();
}
