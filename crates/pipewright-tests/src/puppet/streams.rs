//! The acts of a worker with the items of a request.

use pipewright_ipc::worker::{Answer, Call};
use pipewright_tests::bodies;

/// Performs an act on the items of a call.
pub(crate) fn act(name: &[u8], call: &mut Call<'_>) -> Answer {
    match name {
        b"count-items" => count(call),
        b"take-items" => {
            while call.next_item()?.is_some() {}
            Ok(b"done".to_vec())
        }
        b"sum" => {
            let mut sum = 0;
            while let Some(item) = call.next_item()? {
                sum += item.len();
            }
            Ok(sum.to_string().into_bytes())
        }
        b"first-item" => call.next_item()?.ok_or_else(|| "no item".into()),
        b"echo-items" => {
            let mut count: u64 = 0;
            while let Some(item) = call.next_item()? {
                call.send_item(&item)?;
                count += 1;
            }
            Ok(count.to_string().into_bytes())
        }
        b"after-cancel" => after_cancel(call),
        b"exit-at-item" => {
            call.next_item()?;
            std::process::exit(5);
        }
        _ => Err("unknown request".into()),
    }
}

/// Waits for the cancellation, and only then for items or for credit.
fn after_cancel(call: &mut Call<'_>) -> Answer {
    while !call.is_cancelled() {
        std::thread::park_timeout(std::time::Duration::from_millis(2));
    }
    while call.request().ends_with(b"send") {
        call.send_item(b"x")?;
    }
    while call.next_item()?.is_some() {}
    Ok(Vec::new())
}

/// Checks that each item is the body of its number, and returns their number.
fn count(call: &mut Call<'_>) -> Answer {
    let (mut number, mut expected) = (0, Vec::new());
    while let Some(item) = call.next_item()? {
        bodies::check(number, bodies::length(number), &item, &mut expected);
        number += 1;
    }
    // The end is an end for good.
    if call.next_item()?.is_some() {
        return Err("an item after the end".into());
    }
    Ok(number.to_string().into_bytes())
}
