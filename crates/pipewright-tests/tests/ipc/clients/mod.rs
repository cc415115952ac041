//! Workers in other languages: the libraries of `clients/` behind real hosts, and in front of hostile ones.
//!
//! | file | contents |
//! |---|---|
//! | `language.rs` | the languages, and how their workers are started |
//! | `messages.rs` | a good worker of a channel |
//! | `calls.rs` | a good worker of a pool |
//! | `items.rs` | requests that items follow |
//! | `ends.rs` | the end of either side, refused handshakes, and nothing left |
//! | `examples.rs` | the workers of `docs/workers.md` |
//! | `halves.rs` | a host that stops in the middle of a frame |
//! | `hostile.rs` | a host that breaks the protocol |
//! | `hostile_cancellations.rs` | a host that cancels what cannot be cancelled |
//! | `hostile_items.rs` | a host that breaks the rules of items |
//! | `signals.rs` | signal handlers that raise while a worker waits |

mod calls;
mod ends;
mod examples;
#[cfg(target_os = "linux")]
mod halves;
mod hostile;
mod hostile_cancellations;
mod hostile_items;
mod items;
mod language;
mod messages;
#[cfg(target_os = "linux")]
mod signals;

use language::Language;

/// Makes the suite of one language: a test for each function.
macro_rules! suite {
    ($module:ident, $language:expr, $($file:ident: $($test:ident),+;)+) => {
        mod $module {
            use pipewright_test_macros::watched_test;
            $($(
                #[watched_test]
                fn $test() {
                    if let Some(client) = super::Language::client($language) {
                        super::$file::$test(&client);
                    }
                }
            )+)+
        }
    };
}

/// Makes the suites of all languages.
macro_rules! suites {
    ($($file:ident: $($test:ident),+;)+) => {
        suite!(c, super::Language::C, $($file: $($test),+;)+);
        suite!(node, super::Language::Node, $($file: $($test),+;)+);
        suite!(python, super::Language::Python, $($file: $($test),+;)+);
    };
}

suite! {
    rust, super::Language::Rust,
    hostile_cancellations: cancellations_of_no_call_are_ignored;
    hostile_items: items_have_the_documented_bytes, items_without_credit_end_the_worker, late_frames_of_items_are_ignored,
        a_host_that_ends_between_items_ends_the_worker, any_items_end_without_a_crash;
}

suites! {
    messages: messages_around_every_size_boundary_round_trip, a_long_message_arrives_both_ways,
        a_host_that_does_not_receive_never_deadlocks, two_sides_that_send_everything_first_do_not_deadlock,
        a_stopped_and_continued_worker_loses_nothing, messages_before_a_kill_arrive_whole_and_in_order,
        handles_go_with_messages, stdout_is_not_read_as_messages, shared_memory_is_used_where_it_is_promised;
    calls: many_calls_are_answered, a_failed_call_is_an_error_and_its_worker_is_kept,
        an_exception_without_a_text_fails_only_its_call, items_are_paced_by_their_reader, a_worker_asks_its_caller, a_cancelled_call_ends_and_its_worker_is_kept,
        a_call_that_is_cancelled_while_it_waits_is_not_started, a_reset_is_acknowledged,
        a_dead_worker_fails_its_calls_with_its_status, a_body_that_is_too_long_fails_only_its_own_call,
        an_answer_arrives_behind_long_calls_that_wait;
    items: items_of_a_request_arrive_whole_and_in_order, a_later_loop_continues_after_an_earlier_one,
        items_go_both_ways_at_once, the_worker_decides_how_many_items_are_on_their_way,
        a_worker_may_reply_before_the_last_item, a_call_that_is_cancelled_between_items_ends,
        a_worker_that_knows_of_the_cancellation_does_not_wait, items_may_end_before_their_call_begins,
        a_call_with_items_is_lost_with_its_worker, an_item_over_the_limit_ends_its_call;
    hostile_items: items_have_the_documented_bytes, items_without_credit_end_the_worker, late_frames_of_items_are_ignored,
        a_host_that_ends_between_items_ends_the_worker, any_items_end_without_a_crash;
    hostile_cancellations: cancellations_of_no_call_are_ignored;
    ends: a_goodbye_ends_the_worker, refused_handshakes_name_the_field_on_both_sides,
        required_shared_memory_is_an_error_if_unavailable, a_program_without_a_host_is_told_so,
        a_worker_exits_when_its_host_is_gone, nothing_is_left_in_a_worker;
    examples: the_worker_of_the_tutorial_reverses_requests, the_worker_of_the_tutorial_adds_up_items;
    hostile: wrong_frames_end_the_worker_with_a_reason, wrong_handshakes_end_the_worker_with_a_reason,
        unsafe_memory_is_refused, a_corrupt_ring_ends_the_worker_with_a_reason,
        unexpected_handles_end_the_worker, any_frames_end_without_a_crash, any_ring_ends_without_a_crash;
}

/// Only Linux has shared memory for all of them, and tells that a process sleeps.
#[cfg(target_os = "linux")]
mod halves_of_all {
    use super::{halves, language::Language};
    use pipewright_test_macros::watched_test;

    #[watched_test]
    fn a_worker_with_half_a_message_sleeps() {
        for language in [Language::Rust, Language::C, Language::Python] {
            if let Some(client) = language.client() {
                halves::a_worker_with_half_a_message_sleeps(&client);
            }
        }
    }
}
