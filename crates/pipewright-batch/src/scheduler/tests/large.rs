//! Tests of large graphs: no recursion, no work that is done again and again.

use super::*;

const JOBS: u64 = 10_000;

/// Runs all that starts, and returns the number of each outcome.
fn run_out(told: &mut Told, mut decisions: Vec<Decision>, result: Result<(), Failure>) -> Vec<u64> {
    let mut order = Vec::new();
    while !decisions.is_empty() {
        let running = started(&decisions);
        order.extend(&running);
        decisions = running.iter().flat_map(|number| told.end(*number, result)).collect();
    }
    order
}

#[test]
fn a_deep_chain_runs_in_order() {
    let mut told = Told::new(4);
    let mut first = Vec::new();
    // The last link comes first: each one waits for a job that was not read yet.
    for number in 0..JOBS {
        let link = JOBS - number;
        let name = link.to_string();
        let spec =
            if link == 1 { named(&name) } else { named_after(&name, &[&(link - 1).to_string()]) };
        first = told.add(number, spec);
    }
    assert_eq!(told.tell(Event::InputEnded), []);
    let expected: Vec<u64> = (0..JOBS).rev().collect();
    assert_eq!(run_out(&mut told, first, Ok(())), expected);
    assert!(told.0.is_finished());
}

#[test]
fn a_deep_chain_is_skipped_without_recursion() {
    let mut told = Told::new(4);
    told.add_started(0, named("0"));
    for number in 1..10 * JOBS {
        told.add_waiting(number, named_after(&number.to_string(), &[&(number - 1).to_string()]));
    }
    let settled = settled(&told.end(0, FAILED));
    assert_eq!(settled.len() as u64, 10 * JOBS);
    assert_eq!(settled[9_999], (9_999, skipped(9_998)));
    told.tell(Event::InputEnded);
    assert!(told.0.is_finished());
}

#[test]
fn a_long_cycle_is_found_without_recursion() {
    let mut told = Told::new(4);
    for number in 0..10 * JOBS {
        let next = (number + 1) % (10 * JOBS);
        told.add_waiting(number, named_after(&number.to_string(), &[&next.to_string()]));
    }
    let settled = settled(&told.tell(Event::InputEnded));
    assert_eq!(settled.len() as u64, 10 * JOBS);
    let Some(Cause::Refusal(Refusal::Cycle { names })) = &settled[5].1.cause else { panic!() };
    assert_eq!(names.len() as u64, 10 * JOBS);
    assert_eq!(&*names[5], "5");
    assert!(told.0.is_finished());
}

#[test]
fn a_wide_graph_fans_out_and_in() {
    let mut told = Told::new(8);
    let names: Vec<String> = (1..=JOBS).map(|number| number.to_string()).collect();
    told.add_started(0, named("root"));
    for (number, name) in (1..).zip(&names) {
        told.add_waiting(number, named_after(name, &["root"]));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    told.add_waiting(JOBS + 1, after(&names));
    told.tell(Event::InputEnded);
    let first = told.end(0, Ok(()));
    let order = run_out(&mut told, first, Ok(()));
    let expected: Vec<u64> = (1..=JOBS + 1).collect();
    assert_eq!(order, expected);
    assert!(told.0.is_finished());
}
