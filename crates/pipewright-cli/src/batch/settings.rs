//! The settings of the batch that the options describe.

use pipewright_batch::Batch;

use crate::Failure;
use crate::args::{BatchOptions, FailureCount};

/// Returns the batch.
pub(super) fn batch(options: &BatchOptions) -> Result<Batch, Failure> {
    let retry_delay = options.retry_delay.duration;
    let mut batch = Batch::new()
        .retries(options.retries)
        .retry_delay(retry_delay, retry_delay.saturating_mul(300))
        .once(options.once)
        .stop_with(options.stop_signal, options.kill_grace.duration)
        .contain(options.contain.to_containing());
    if let Some(count) = options.jobs {
        batch = batch.jobs(count.resolve());
    }
    if !options.retry_on.is_empty() {
        batch = batch.retry_on(options.retry_on.iter().map(|kind| kind.to_class()));
    }
    for token in &options.tokens {
        batch = batch.tokens(&token.name, token.count);
    }
    for variable in &options.env {
        let (name, value) = crate::run::command::split_variable(variable)?;
        batch = batch.env(name, value);
    }
    if let Some(timeout) = &options.timeout {
        batch = batch.timeout(timeout.duration);
    }
    if let Some(timeout) = &options.idle_timeout {
        batch = batch.idle_timeout(timeout.duration);
    }
    if let Some(timeout) = &options.batch_timeout {
        batch = batch.batch_timeout(timeout.duration);
    }
    if let Some(bytes) = options.limit {
        batch = batch.limit_bytes(bytes);
    }
    let failures = options.max_failures.or(options.fail_fast.then_some(FailureCount::Count(1)));
    Ok(match failures {
        Some(FailureCount::Count(count)) => batch.max_failures(count, false),
        Some(FailureCount::Percent(percent)) => batch.max_failures_percent(percent, false),
        None => batch,
    })
}
