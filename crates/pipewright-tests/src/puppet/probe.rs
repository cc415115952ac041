//! The workers of typed services: that of the tests, and that of the example.

use std::thread;
use std::time::Duration;

use pipewright_ipc::Options;
use pipewright_ipc::service::{Context, Duplex, Input, Output};
use pipewright_tests::service::{DivisionError, Probe};

#[expect(dead_code, reason = "the host's side of the example")]
#[path = "../../../pipewright-ipc/examples/service.rs"]
mod example;

/// Serves the example.
pub(crate) fn calculate(options: &Options) -> Result<(), pipewright_ipc::Error> {
    example::Calculator::serve(example::Worker, options)
}

/// The worker, and the sum so far.
#[derive(Default)]
pub(crate) struct ProbeWorker(u64);

impl Probe for ProbeWorker {
    fn pid(&self) -> u32 {
        std::process::id()
    }

    fn divide(&self, dividend: i64, divisor: i64) -> Result<i64, DivisionError> {
        match divisor {
            0 => Err(DivisionError::ByZero { dividend }),
            _ => dividend.checked_div(divisor).ok_or(DivisionError::Overflow),
        }
    }

    fn add(&mut self, numbers: Vec<u64>) -> u64 {
        self.0 += numbers.iter().sum::<u64>();
        self.0
    }

    fn nothing(&self, (): (), _: String, _: u8, _: u8, _: u8) {}

    fn panic(&self, message: String) {
        panic!("{message}")
    }

    fn exit(&self, code: i32) {
        std::process::exit(code)
    }

    fn wait(&self, file: String, context: &mut Context<'_>) -> bool {
        let is_written = std::fs::write(file, "").is_ok();
        while !context.is_cancelled() {
            thread::park_timeout(Duration::from_millis(2));
        }
        is_written
    }

    fn count_up(&self, to: u32, numbers: &mut Output<'_, u32>) -> String {
        for number in 0..to {
            if let Err(error) = numbers.send(&number) {
                return error.to_string();
            }
        }
        "done".to_owned()
    }

    fn sum(&self, start: u64, numbers: &mut Input<'_, u64>) -> Option<u64> {
        let mut sum = start;
        while let Some(number) = numbers.next().ok()? {
            sum += number;
        }
        Some(sum)
    }

    fn number(&self, texts: &mut Duplex<'_, String, (u32, String)>, prefix: String) -> u32 {
        let mut count = 0;
        while let Ok(Some(text)) = texts.next() {
            if texts.send(&(count, prefix.clone() + &text)).is_err() {
                break;
            }
            count += 1;
        }
        count
    }

    fn reset(&mut self) -> bool {
        self.0 = 0;
        true
    }
}
