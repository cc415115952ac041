//! Tests of the messages and plans of slots: what one side writes, the other reads, and no content does harm.

use proptest::prelude::*;

use crate::process::nolibc::message::{PLAN_BYTES, Plan, Request, field, flag};

proptest! {
    #[test]
    fn requests_round_trip(job: i64, bytes in 0..=PLAN_BYTES) {
        for request in [Request::Start { job, bytes }, Request::EndTree { job }] {
            prop_assert_eq!(Request::of_words(&request.to_words()), Some(request));
        }
    }

    #[test]
    fn other_words_are_no_request(kind in prop_oneof![Just(1_i64), any::<i64>()], job: i64, bytes: i64) {
        match Request::of_words(&[kind, job, bytes]) {
            Some(Request::Start { bytes, .. }) => prop_assert!(bytes <= PLAN_BYTES),
            Some(Request::EndTree { .. }) => prop_assert_eq!(kind, 2),
            None => prop_assert!(kind != 2),
        }
    }

    /// The supervisor reads a plan that another process may change at any time.
    #[test]
    fn any_words_are_read_within_their_memory(
        words in proptest::collection::vec(word(), 0..80),
        index in prop_oneof![0_usize..100, Just(usize::MAX), any::<usize>()],
    ) {
        let plan = Plan::new(&words, BASE);
        for list in [plan.array(index), plan.list(index, index, 1), plan.list(0, 1, 3)].into_iter().flatten() {
            prop_assert!(list.is_empty() || words.as_ptr_range().contains(&list.as_ptr()));
            prop_assert!(list.as_ptr_range().end <= words.as_ptr_range().end || list.is_empty());
        }
        let _ = (plan.has(flag::SEARCHES), plan.word(index));
    }
}

const BASE: u64 = 0x7f00_0000_0000;

/// Returns a word that is often an address in the memory, or next to it, or a small number.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0_u64..90).prop_map(|place| BASE + place * 8),
        (0_u64..800).prop_map(|place| BASE - 40 + place),
        0_u64..20,
        any::<u64>(),
    ]
}

#[test]
fn an_empty_plan_has_no_program() {
    assert!(Plan::new(&[], BASE).array(field::ARGV).is_none());
    assert!(Plan::new(&[0; field::COUNT], BASE).array(field::ARGV).is_none());
}
