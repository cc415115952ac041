//! Tests of the check of a whole input.

use std::num::NonZeroU32;

use super::*;
use crate::scheduler::{ResourceKind, ResourceNeed};

fn limits() -> Limits {
    let named = vec![ResourceKind { name: "link".into(), capacity: 2 }];
    Limits { slots: NonZeroU32::new(2).unwrap(), memory_bytes: None, named }
}

/// Checks jobs of a name (empty: none) and an `after`, with numbers from 1.
fn checked(jobs: &[(&str, &[&str])]) -> Result<(), PlanError> {
    let afters = jobs.iter().map(|(_, after)| after.iter().map(|name| (*name).into()).collect());
    let afters: Vec<Vec<Box<str>>> = afters.collect();
    let needs = Needs::one_cpu();
    let planned = (1..).zip(jobs).zip(&afters).map(|((number, (name, _)), after)| Planned {
        job: JobNumber(number),
        name: Some(*name).filter(|name| !name.is_empty()),
        after,
        needs: &needs,
    });
    check(planned, &limits())
}

#[test]
fn a_good_plan_is_accepted() {
    assert_eq!(checked(&[]), Ok(()));
    let jobs: [(&str, &[&str]); 5] =
        [("", &["b", "b"]), ("a", &[]), ("b", &["a", "c"]), ("c", &["a"]), ("", &[])];
    assert_eq!(checked(&jobs), Ok(()));
}

#[test]
fn duplicate_names_are_refused_with_both_jobs() {
    let error = checked(&[("a", &["unknown"]), ("", &[]), ("a", &[])]).unwrap_err();
    let (first, second) = (JobNumber(1), JobNumber(3));
    assert_eq!(error, PlanError::DuplicateName { name: "a".into(), first, second });
    assert_eq!(
        error.to_string(),
        "jobs 1 and 3 are both named \"a\": give each job a name of its own"
    );
}

#[test]
fn unknown_names_are_refused_with_the_first_job() {
    let jobs: [(&str, &[&str]); 4] =
        [("a", &["later"]), ("b", &["z", "y"]), ("", &["y", "z"]), ("later", &[])];
    let error = checked(&jobs).unwrap_err();
    assert_eq!(error, PlanError::UnknownAfter { job: JobNumber(2), name: "z".into() });
    assert_eq!(error.to_string(), "job 2 is after \"z\", and no job has that name");
    let error = checked(&[("", &["nobody"])]).unwrap_err();
    assert_eq!(error, PlanError::UnknownAfter { job: JobNumber(1), name: "nobody".into() });
}

#[test]
fn a_cycle_is_refused_with_its_names_in_order() {
    let jobs: [(&str, &[&str]); 5] =
        [("free", &[]), ("tail", &["a"]), ("a", &["free", "b"]), ("c", &["a"]), ("b", &["c"])];
    let error = checked(&jobs).unwrap_err();
    let names = ["a", "b", "c"].map(Box::from).to_vec();
    assert_eq!(error, PlanError::Cycle { names });
    assert_eq!(
        error.to_string(),
        "jobs wait for each other: \"a\" after \"b\" after \"c\" after \"a\""
    );
    let error = checked(&[("own", &["own"])]).unwrap_err();
    assert_eq!(error, PlanError::Cycle { names: vec!["own".into()] });
}

#[test]
fn needs_that_nobody_has_are_refused() {
    let needs = |cpus, count| Needs {
        cpus: NonZeroU32::new(cpus).unwrap(),
        memory_bytes: None,
        named: vec![ResourceNeed { kind: 0, count }],
    };
    let checked = |needs: Needs| {
        let job = JobNumber(7);
        check([Planned { job, name: None, after: &[], needs: &needs }], &limits())
    };
    assert_eq!(checked(needs(2, 2)), Ok(()));
    let error = checked(needs(1, 3)).unwrap_err();
    assert_eq!(error.to_string(), "job 7 can never run");
    let source = error.source().map(ToString::to_string);
    assert_eq!(source.as_deref(), Some("needs 3 of the resource \"link\", and the batch has 2"));
    assert!(matches!(checked(needs(3, 1)), Err(PlanError::Needs { .. })));
}

#[test]
fn a_deep_chain_and_a_long_cycle_need_no_recursion() {
    const JOBS: usize = 100_000;
    let names: Vec<String> = (0..JOBS).map(|job| job.to_string()).collect();
    let limits = limits();
    let needs = Needs::one_cpu();
    for is_cycle in [false, true] {
        let mut check = Check::new(&limits);
        for (job, name) in names.iter().enumerate() {
            let next = names.get(job + 1).or(names.first().filter(|_| is_cycle));
            let after: Vec<Box<str>> = next.into_iter().map(|name| name.as_str().into()).collect();
            let job = JobNumber(job as u64);
            check.add(Planned { job, name: Some(name), after: &after, needs: &needs }).unwrap();
        }
        match check.finish() {
            Ok(()) => assert!(!is_cycle),
            Err(PlanError::Cycle { names }) => {
                assert!(is_cycle && names.len() == JOBS && &*names[JOBS - 1] == "99999");
            }
            other => panic!("{other:?}"),
        }
    }
}
