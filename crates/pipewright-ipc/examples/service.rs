//! A typed service: a trait, its worker and its client, with an error of its own and items in both directions.
//!
//! `cargo run --release -p pipewright-ipc --features service --example service`

use std::env;
use std::error::Error;
use std::thread;

use pipewright_ipc::service::{Duplex, Input, Output};
use pipewright_ipc::{Command, PoolOptions, service, worker};
use serde::{Deserialize, Serialize};

/// The error of a formula: the part that is no number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NoNumber {
    pub(crate) part: String,
}

/// Sums and primes, in a process of their own.
#[service(version = 1)]
pub(crate) trait Calculator {
    /// Adds up a formula such as `1 + 2.5`.
    #[idempotent]
    fn evaluate(&self, formula: String) -> Result<f64, NoNumber>;

    /// Sends the primes below a limit, and returns how many there are.
    fn primes(&self, limit: u64, primes: &mut Output<'_, u64>) -> u64;

    /// Returns the mean of numbers.
    fn mean(&self, numbers: &mut Input<'_, f64>) -> Option<f64>;

    /// Adds up formulas as they come, and returns the number of those that are right.
    fn evaluate_all(&self, formulas: &mut Duplex<'_, String, Result<f64, NoNumber>>) -> u64;
}

/// The worker.
pub(crate) struct Worker;

impl Calculator for Worker {
    fn evaluate(&self, formula: String) -> Result<f64, NoNumber> {
        let parts = formula.split('+').map(str::trim);
        parts.map(|part| part.parse::<f64>().map_err(|_| NoNumber { part: part.to_owned() })).sum()
    }

    fn primes(&self, limit: u64, primes: &mut Output<'_, u64>) -> u64 {
        let mut count = 0;
        let is_prime =
            |number: u64| (2..).take_while(|it| it * it <= number).all(|it| number % it > 0);
        for number in (2..limit).filter(|number| is_prime(*number)) {
            // The caller has dropped the receiver.
            if primes.send(&number).is_err() {
                break;
            }
            count += 1;
        }
        count
    }

    fn mean(&self, numbers: &mut Input<'_, f64>) -> Option<f64> {
        let (mut sum, mut count) = (0.0, 0.0);
        while let Some(number) = numbers.next().ok()? {
            sum += number;
            count += 1.0;
        }
        (count > 0.0).then_some(sum / count)
    }

    fn evaluate_all(&self, formulas: &mut Duplex<'_, String, Result<f64, NoNumber>>) -> u64 {
        let mut right = 0;
        while let Ok(Some(formula)) = formulas.next() {
            let sum = self.evaluate(formula);
            right += u64::from(sum.is_ok());
            if formulas.send(&sum).is_err() {
                break;
            }
        }
        right
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // The client starts this program once more for each worker.
    if worker::is_worker() {
        return Ok(Worker.serve(&Default::default())?);
    }
    calculate(Command::new(env::current_exe()?))
}

/// Calls each method of workers that the command runs.
pub(crate) fn calculate(command: Command) -> Result<(), Box<dyn Error>> {
    let client = CalculatorClient::new(command, PoolOptions::default())?;

    // The first `?` is for the call, which the worker may not survive; the second value is the method's own.
    assert_eq!(client.evaluate("1 + 2.5".to_owned())?, Ok(3.5));
    let error = NoNumber { part: "two".to_owned() };
    assert_eq!(client.evaluate("1 + two".to_owned())?, Err(error.clone()));

    // Items from the worker, then the return value.
    let mut primes = client.primes(100)?;
    assert_eq!(primes.next()?, Some(2));
    assert_eq!(primes.finish()?, 25);

    // Items to the worker.
    let (mut numbers, mean) = client.mean()?;
    for number in [1.0, 2.0, 6.0] {
        numbers.send(&number)?;
    }
    numbers.finish();
    assert_eq!(mean.wait()?, Some(3.0));

    // Both at once: one thread sends, one receives. In tasks: `send_async` and `next_async`.
    let (mut formulas, mut sums) = client.evaluate_all()?;
    thread::scope(|scope| -> Result<(), pipewright_ipc::Error> {
        let sending = scope.spawn(move || -> Result<(), pipewright_ipc::Error> {
            for formula in ["1 + 1", "two", "2 + 2"] {
                formulas.send(&formula.to_owned())?;
            }
            formulas.finish();
            Ok(())
        });
        assert_eq!(sums.next()?, Some(Ok(2.0)));
        assert_eq!(sums.next()?, Some(Err(NoNumber { part: "two".to_owned() })));
        assert_eq!(sums.next()?, Some(Ok(4.0)));
        sending.join().unwrap_or(Ok(()))
    })?;
    assert_eq!(sums.finish()?, 2);
    client.shut_down();
    println!("all sums are right");
    Ok(())
}
