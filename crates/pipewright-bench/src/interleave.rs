//! Interleaved rounds: every competitor once in order, and again.

/// Measures every competitor once in each round, in order, and returns the figures of each round.
///
/// A machine that becomes slower for a while then slows all competitors of a round alike, so compare the figures
/// of one round with each other: see [`stats::ratios`](crate::stats::ratios).
///
/// # Errors
///
/// The first error of `measure`, which ends the run.
///
/// # Example
///
/// ```
/// let rounds = pipewright_bench::interleaved(3, &["a", "bc"], |round, name| {
///     Ok::<_, std::io::Error>((name.len() * 10 + round) as f64)
/// })?;
/// assert_eq!(rounds, [[10.0, 20.0], [11.0, 21.0], [12.0, 22.0]]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn interleaved<C, T, E>(
    rounds: usize,
    competitors: &[C],
    mut measure: impl FnMut(usize, &C) -> Result<T, E>,
) -> Result<Vec<Vec<T>>, E> {
    (0..rounds)
        .map(|round| competitors.iter().map(|competitor| measure(round, competitor)).collect())
        .collect()
}
